// The order of a warp's steps in one stage of the mma family: fragments one piece ahead, weights
//   scaled to 16 bits one step ahead, products.
// Run by a whole converged warp.
// Reads -> writes: a stage in shared memory, through memory/ -> fp32 accumulator fragments.
// Source: own. A weight is (code - zero point) * scale rounded once, as torch's dequantized
//   weights are; scales of whole rows are left to the epilogue.
#pragma once
#include "humming/dequant/fragment_factors.cuh"
#include "humming/memory/mma_operands.cuh"

namespace humming {

// Columns of the product that are held at a time: an even number, no more than `most` where that is
// possible.
__host__ __device__ constexpr int mma_piece(int columns, int most) {
  return columns > most && columns % 4 == 0 ? mma_piece(columns / 2, most) : columns;
}

template <class Config>
using MmaSums = float[MmaPlan<Config>::warp_tiles][MmaPlan<Config>::columns][4];

// What a warp holds between shared memory and the tensor cores: two pieces of x, two steps of
// weights, the words of the k tile that it is in. `Kind` is void where x has 16 bits; mma_bytes.cuh
// is for codes.
template <class Config, class Kind = void>
struct MmaFragments {
  using Plan = MmaPlan<Config>;
  using Activation = typename Config::Activation;
  using Codes = typename Config::Codes;
  static constexpr bool has_zeros = Config::has_zero_points != 0;
  using Factors = FragmentFactors<Codes, Activation, Plan::grouped, has_zeros>;
  static constexpr int piece = mma_piece(Plan::columns, Config::stream_k ? 4 : 8);
  static constexpr int pieces = Plan::columns / piece;
  static constexpr int steps = Plan::warp_k_tiles * 4;

  u32 b[2][piece][2];
  u32 a[2][Plan::warp_tiles][4];
  CodeWords<Codes::bits> words[Plan::warp_tiles];
  Factors factors[Plan::warp_tiles];
  // Of 64 columns, where sums begin in 16 bits.
  static constexpr bool halves = Config::half_sums != 0;
  u32 part[halves ? Plan::warp_tiles : 1][halves ? Plan::columns : 1][2];

  __device__ __forceinline__ void begin() {}
  __device__ __forceinline__ void finish(MmaSums<Config>&) const {}

  __device__ __forceinline__ void read_x(const MmaOperands<Config>& operands, u32 base, int step,
                                         int first_piece, int buffer) {
#pragma unroll
    for (int c = 0; c < piece; c += 2)
      operands.x_fragments(b[buffer][c], b[buffer][c + 1], base, step / 4, step % 4,
                           (first_piece * piece + c) / 2);
  }

  __device__ __forceinline__ void read_weights(const MmaOperands<Config>& operands, u32 base,
                                               int step) {
#pragma unroll
    for (int t = 0; t < Plan::warp_tiles; ++t) {
      if (step % 4 == 0) operands.words(words[t], base, t, step / 4);
      if (Plan::grouped && step * 16 % Plan::group_size == 0) {
        const int group = step * 16 / Plan::group_size;
        factors[t].set(operands.scale_pair(base, t, group),
                       has_zeros ? operands.zero_pair(base, t, group) : 0);
      }
    }
  }

  __device__ __forceinline__ void scale_weights(int step, int buffer) {
#pragma unroll
    for (int t = 0; t < Plan::warp_tiles; ++t) {
      Codes::fragment(a[buffer][t], words[t].word, step % 4);
      factors[t].apply(a[buffer][t]);
    }
  }

  __device__ __forceinline__ void multiply(MmaSums<Config>& sums, int step, int number,
                                           int buffer) {
#pragma unroll
    for (int c = 0; c < piece; ++c)
#pragma unroll
      for (int t = 0; t < Plan::warp_tiles; ++t) {
        const int column = number * piece + c;
        if constexpr (halves) {
          multiply_in_halves(sums[t][column], part[t][column], step, a[step % 2][t], b[buffer][c]);
        } else {
          Activation::warp_multiply(sums[t][column], a[step % 2][t], b[buffer][c]);
        }
      }
  }

 private:
  static __device__ __forceinline__ void multiply_in_halves(float (&sum)[4], u32 (&of_tile)[2],
                                                            int step, const u32 (&w)[4],
                                                            const u32 (&x)[2]) {
    if (step % 4 == 0) of_tile[0] = of_tile[1] = 0;
    Activation::warp_multiply(of_tile, w, x);
    if (step % 4 != 3) return;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum[j] += Activation::widen(static_cast<u16>(of_tile[j / 2] >> (j % 2 * 16)));
  }
};

}  // namespace humming
