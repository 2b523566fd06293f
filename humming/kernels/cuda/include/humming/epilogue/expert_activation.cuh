// What stands between an expert's two projections, and the weighted sum after them.
// Run by one thread: eight neighbours of a row, or as many as are left.
// Reads -> writes: out of the first projection -> x of the second; out of that -> out [m, n].
// Source: own, as humming/moe/activations.py and router.py say; fp32, rounded once. A token's experts
//   are added in their order, so that equal inputs give equal bits.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/expert_rows.cuh"

namespace humming {

enum class ExpertActivation : int {
  silu,
  gelu,
  gelu_tanh,
  swiglu_clamped,
  silu_clamped,
  relu2,
  silu_plain,
  gelu_plain
};

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}
__device__ __forceinline__ float gelu_tanh(float x) {
  const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}

template <ExpertActivation kind>
__device__ __forceinline__ float activated(float gate, float up, float alpha, float limit) {
  if constexpr (kind == ExpertActivation::silu) return silu(gate) * up;
  if constexpr (kind == ExpertActivation::gelu) return gelu(gate) * up;
  if constexpr (kind == ExpertActivation::gelu_tanh) return gelu_tanh(gate) * up;
  if constexpr (kind == ExpertActivation::swiglu_clamped ||
                kind == ExpertActivation::silu_clamped) {
    gate = fminf(gate, limit), up = fminf(fmaxf(up, -limit), limit);
    if constexpr (kind == ExpertActivation::silu_clamped) return silu(gate) * up;
    return gate / (1.0f + expf(-alpha * gate)) * (up + 1.0f);
  }
  if constexpr (kind == ExpertActivation::relu2) return fmaxf(gate, 0.0f) * fmaxf(gate, 0.0f);
  if constexpr (kind == ExpertActivation::silu_plain) return silu(gate);
  return gelu(gate);
}

__host__ __device__ constexpr bool is_gated(ExpertActivation kind) {
  return kind <= ExpertActivation::silu_clamped;
}

// Eight neighbours, or `count` of them one by one.
template <class Activation>
__device__ __forceinline__ void load_eight(float (&v)[8], const u16* source, int count) {
  if (count == 8 && (reinterpret_cast<u64>(source) & 15) == 0) {
    const Words4 words = ptx::load_global_words4(source);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      v[i] = Activation::widen(static_cast<u16>(words.word[i / 2] >> (i % 2 * 16)));
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    v[i] = i < count ? Activation::widen(ptx::load_global_u16(source + i)) : 0.0f;
}
template <class Activation>
__device__ __forceinline__ void store_run(const float (&v)[8], u16* target, int count) {
  Words4 packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) packed.word[i] = Activation::pack(v[2 * i], v[2 * i + 1]);
  if (count == 8 && (reinterpret_cast<u64>(target) & 15) == 0) {
    ptx::store_global_words4(target, packed);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count)
      ptx::store_global_u16(target + i, static_cast<u16>(packed.word[i / 2] >> (i % 2 * 16)));
}

template <class Config>
__device__ __forceinline__ void thread_activate(const void* projected, void* out, i64 rows,
                                                int width, float alpha, float limit) {
  using Activation = typename Config::Activation;
  constexpr bool gated = is_gated(Config::kind);
  const int runs = (width + 7) / 8;
  const i64 id = grid_thread(), row = id / runs;
  if (row >= rows) return;
  const int column = static_cast<int>(id % runs) * 8, count = min(8, width - column);
  const u16* source = static_cast<const u16*>(projected) + row * width * (gated ? 2 : 1) + column;
  float gate[8], up[8];
  load_eight<Activation>(gate, source, count);
  if constexpr (gated) load_eight<Activation>(up, source + width, count);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    gate[i] = activated<Config::kind>(gate[i], gated ? up[i] : 0.0f, alpha, limit);
  store_run<Activation>(gate, static_cast<u16*>(out) + row * width + column, count);
}

template <class Config>
__device__ __forceinline__ void thread_combine(const void* parts, const float* weights, void* out,
                                               i64 m, int top_k, int n) {
  using Activation = typename Config::Activation;
  const int runs = (n + 7) / 8;
  const i64 id = grid_thread(), token = id / runs;
  if (token >= m) return;
  const int column = static_cast<int>(id % runs) * 8, count = min(8, n - column);
  float total[8] = {};
#pragma unroll 4
  for (int j = 0; j < top_k; ++j) {
    float part[8];
    load_eight<Activation>(part, static_cast<const u16*>(parts) + (token * top_k + j) * n + column,
                           count);
    const float weight =
        weights == nullptr ? 1.0f : ptx::load_global_f32(weights + token * top_k + j);
#pragma unroll
    for (int i = 0; i < 8; ++i) total[i] = __fadd_rn(total[i], __fmul_rn(part[i], weight));
  }
  store_run<Activation>(total, static_cast<u16*>(out) + token * n + column, count);
}

}  // namespace humming
