// A row of x to codes and scales, step by step: read, rotate, find the largest, divide, round, store.
// Run by all threads of a block, which takes one row.
// Reads -> writes: x [m, k], or [m, 2k] where two halves make one -> codes [m, pitch], zero beyond k,
//   and scales [groups, m].
// Source: own. Numbers stay in registers between both passes as far as they go, and are read again
//   from there on. The rotation is the fast Walsh-Hadamard transform over neighbouring columns.
#pragma once
#include "humming/epilogue/quantize_input.cuh"
#include "humming/memory/input_rows.cuh"
#include "humming/ptx/grid.cuh"

namespace humming {

template <class Config>
struct InputBlock {
  static constexpr int threads = Config::threads, held = Config::held, size = Config::group_size;
  static constexpr int lanes = size / 8;  // of a warp that share a group
  static constexpr bool by_lanes =
      size > 0 && size % 8 == 0 && (lanes & (lanes - 1)) == 0 && lanes <= 32;
  static constexpr bool is_fixed = Config::kind == ScaleKind::fixed;
  static constexpr bool row_first =
      !is_fixed && (size == 0 || Config::kind == ScaleKind::under_row);
  // Whether scales of groups and of rows are kept apart, as tensor cores take the former along.
  static constexpr bool apart =
      Config::kind == ScaleKind::under_row && Config::output == InputOutput::nibbles;
  using Codes = typename Config::Codes;

  static __device__ __forceinline__ float scale_of(u32 bits, float row) {
    if constexpr (Config::kind == ScaleKind::power_of_two)
      return power_of_two_scale(bits, Config::last_exponent);
    if constexpr (Config::kind == ScaleKind::under_row)
      return scale_under_row(bits, Config::largest, row);
    return plain_scale(bits, Config::largest);
  }

  static __device__ __forceinline__ void rotate(float (&v)[8]) {
    if constexpr (Config::hadamard > 1) {
#pragma unroll
      for (int step = 1; step < 8 && step < Config::hadamard; step *= 2)
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if ((i & step) == 0) {
            const float a = v[i], b = v[i + step];
            v[i] = a + b, v[i + step] = a - b;
          }
#pragma unroll
      for (int step = 8; step < Config::hadamard; step *= 2)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float other = __shfl_xor_sync(0xFFFFFFFFu, v[i], step / 8);
          v[i] = (threadIdx.x & (step / 8)) == 0 ? v[i] + other : other - v[i];
        }
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] *= Config::hadamard_scale;
    }
  }

  static __device__ __forceinline__ u32 largest(const float (&v)[8]) {
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) bits = max(bits, magnitude_bits(v[i]));
    return bits;
  }

  template <int width>
  static __device__ __forceinline__ u32 largest_of_lanes(u32 bits) {
#pragma unroll
    for (int step = 1; step < width; step *= 2)
      bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, step));
    return bits;
  }

  static __device__ __forceinline__ u32 largest_of_block(u32 bits) {
    __shared__ u32 of_warp[threads / 32];
    bits = largest_of_lanes<32>(bits);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = bits;
    __syncthreads();
    bits = 0;
#pragma unroll
    for (int i = 0; i < threads / 32; ++i) bits = max(bits, of_warp[i]);
    return bits;
  }

  const InputRow<Config> row;
  const InputOutputRow<Config> out;
  const float* const fixed;
  const int k, groups, chunks, rounds;  // groups; eights of the stored row, and of a thread
  float kept[held][8];

  __device__ __forceinline__ InputBlock(const InputCall& call, i64 number)
      : row(call, number),
        out(call, number),
        fixed(call.fixed),
        k(call.k),
        groups((call.k + size - 1) / (size ? size : 1)),
        chunks(static_cast<int>(Config::output == InputOutput::numbers ? (call.k + 7) / 8
                                : Config::output == InputOutput::nibbles
                                    ? call.codes_row_bytes / 4
                                    : call.codes_row_bytes / 8)),
        rounds((chunks + threads - 1) / threads) {}

  __device__ __forceinline__ void read(float (&v)[8], int round) const {
    row.eight(v, (round * threads + static_cast<int>(threadIdx.x)) * 8);
    rotate(v);
  }

  // Whole rows, or groups that neighbouring lanes share.
  __device__ __forceinline__ void run() {
    float of_row = 1.0f;
#pragma unroll
    for (int i = 0; i < held; ++i)
      if (i < rounds) read(kept[i], i);
    if constexpr (is_fixed) {
      of_row = *fixed;
      if (threadIdx.x == 0) out.scale(0, of_row);
    }
    if constexpr (row_first) {
      u32 bits = 0;
#pragma unroll
      for (int i = 0; i < held; ++i)
        if (i < rounds) bits = max(bits, largest(kept[i]));
      for (int i = held; i < rounds; ++i) {
        float v[8];
        read(v, i);
        bits = max(bits, largest(v));
      }
      bits = largest_of_block(bits);
      constexpr float reach = Config::kind == ScaleKind::under_row ? 448.0f : 1.0f;
      of_row = Config::kind == ScaleKind::under_row ? plain_scale(bits, Config::largest * reach)
                                                    : scale_of(bits, 1.0f);
      if (threadIdx.x == 0 && (size == 0 || apart)) out.scale(size == 0 ? 0 : groups, of_row);
    }
#pragma unroll
    for (int i = 0; i < held; ++i)
      if (i < rounds) finish(kept[i], i, of_row);
    for (int i = held; i < rounds; ++i) {
      float v[8];
      read(v, i);
      finish(v, i, of_row);
    }
  }

  __device__ __forceinline__ void finish(float (&v)[8], int round, float of_row) const {
    const int chunk = round * threads + static_cast<int>(threadIdx.x);
    float scale = of_row;
    if constexpr (by_lanes) {
      scale = scale_of(largest_of_lanes<by_lanes ? lanes : 1>(largest(v)), of_row);
      if (threadIdx.x % lanes == 0 && chunk * 8 < k)
        out.scale(chunk / lanes, apart ? __fdiv_rn(scale, of_row) : scale);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = Codes::rounded(__fdiv_rn(v[i], scale), Config::largest);
    out.eight(v, chunk, chunk < chunks, scale);
  }

  // Groups of any size, a warp each.
  __device__ __forceinline__ void run_by_warps() const {
    const int lane = threadIdx.x % 32;
    for (int group = threadIdx.x / 32; group < groups; group += threads / 32) {
      const int first = group * size, end = min(first + size, k);
      u32 bits = 0;
      for (int c = first + lane; c < end; c += 32) bits = max(bits, magnitude_bits(row.one(c)));
      const float scale = scale_of(largest_of_lanes<32>(bits), 1.0f);
      if (lane == 0) out.scale(group, scale);
      for (int c = first + lane; c < end; c += 32)
        out.one(Codes::rounded(__fdiv_rn(row.one(c), scale), Config::largest), c, scale);
    }
    for (int c = k + static_cast<int>(threadIdx.x); c < chunks * 8; c += threads) out.one(0, c, 0);
  }
};

template <class Config>
__device__ __forceinline__ void block_quantize_input(const InputCall& call) {
#if __CUDA_ARCH__ >= 900
  ptx::grid_dependency_release();
  ptx::grid_dependency_wait();
#endif
  InputBlock<Config> block(call, input_row());
  if constexpr (Config::group_size == 0 || InputBlock<Config>::by_lanes) {
    block.run();
  } else {
    block.run_by_warps();
  }
}

}  // namespace humming
