// A kernel's body: checks its arguments, prepares x, runs the mainloop.
// Run by the calling thread, which shares work with the pool.
// Reads and writes what GemmArgs names.
// Technique: none.
#pragma once

#include "humming/args.h"
#include "humming/mainloop/tiny_rows.h"

namespace humming {

constexpr int64_t kLine = 64;

template <class Config>
int64_t workspace_bytes(int64_t m, int64_t n, int64_t k, int64_t threads) {
  const int64_t floats = Mainloop<Config>::workspace_floats(m, n, k, threads);
  return floats ? floats * (int64_t)sizeof(float) + kLine : 0;
}

// Whether the operands that Config's format has are there, and no others.
template <class Config>
bool has_its_operands(const GemmArgs& a) {
  using Weight = PackedWeight<Config>;
  return a.x && a.codes && a.out && (a.scales || !Weight::has_scales) &&
         (a.zero_points || !Config::Product::Dequant::has_zero_points) &&
         (a.permutation != nullptr) == Config::is_permuted;
}

template <class Config>
Status gemm(const GemmArgs& a) {
  using In = typename Config::Activation;
  using Element = typename Config::Output;
  using X = ActivationFor<Config>;
  if (a.m < 0 || a.n < 1 || a.k < 1 || a.ldx < a.k || a.ldo < a.n || a.threads < 1) {
    return kBadShape;
  }
  if (a.m == 0) return kOk;
  if (!has_its_operands<Config>(a)) return kNullPointer;
  const int64_t needed = workspace_bytes<Config>(a.m, a.n, a.k, a.threads);
  if (a.workspace_bytes < needed || (needed && !a.workspace)) return kWorkspaceTooSmall;

  float* workspace = (float*)(((uintptr_t)a.workspace + kLine - 1) / kLine * kLine);
  const Workers workers = {a.parallel_for, a.threads};
  const PackedWeight<Config> w = {a.codes, a.scales, a.zero_points, a.n, a.k};
  const Columns<In> columns = {(const typename In::Stored*)a.x, a.permutation, a.ldx, a.m, a.k};
  const auto x = X::prepare(columns, workspace, workers);
  const Output<Element> out = {
      (typename Element::Stored*)a.out, a.ldo, a.m, a.n, a.row_scales, x.token_scales(), a.bias};
  Mainloop<Config>::run(x, w, out, workspace + X::workspace_floats(a.m, a.k), workers);
  if constexpr (Config::Product::flushes_denormals) {
    redo_tiny_rows<In>(columns, w, out, workers);
  }
  return kOk;
}

}  // namespace humming
