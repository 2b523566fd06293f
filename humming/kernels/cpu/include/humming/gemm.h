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

template <class Config>
Status gemm(const GemmArgs& a) {
  using In = typename Config::Activation;
  using Element = typename Config::Output;
  if (a.m < 0 || a.n < 1 || a.k < 32 || a.k % 32 || a.ldx < a.k || a.ldo < a.n || a.threads < 1) {
    return kBadShape;
  }
  if (a.m == 0) return kOk;
  if (!a.x || !a.codes || !a.scales || !a.out) return kNullPointer;
  const int64_t needed = workspace_bytes<Config>(a.m, a.n, a.k, a.threads);
  if (a.workspace_bytes < needed || (needed && !a.workspace)) return kWorkspaceTooSmall;

  float* workspace = (float*)(((uintptr_t)a.workspace + kLine - 1) / kLine * kLine);
  const Workers workers = {a.parallel_for, a.threads};
  const PackedWeight w = {a.codes, a.scales, a.n, a.k};
  const Output<Element> out = {(typename Element::Stored*)a.out, a.ldo, a.m, a.n, a.bias};
  const auto x = Activation<Config>::prepare((const typename In::Stored*)a.x, a.ldx, a.m, a.k,
                                             workspace, workers);
  Mainloop<Config>::run(x, w, out, workspace + Activation<Config>::workspace_floats(a.m, a.k),
                        workers);
  if constexpr (Config::Product::flushes_denormals) {
    redo_tiny_rows<In>((const uint16_t*)a.x, a.ldx, w, out, workers);
  }
  return kOk;
}

}  // namespace humming
