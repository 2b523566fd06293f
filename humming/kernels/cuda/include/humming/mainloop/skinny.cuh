// The order of a skinny warp's steps: fragments of x once a group, then every row tile against
//   them, then the scale.
// Run by a whole converged warp.
// Reads -> writes: weight pieces, x and scales through memory/ -> fp32 accumulator fragments.
// Source: own. The bias that raw codes carry is taken away by one more product with x, shared by
//   all row tiles of the group.
#pragma once
#include "humming/dequant/int4.cuh"
#include "humming/memory/skinny_operands.cuh"

namespace humming {

template <class Config>
using SkinnySums = float[Config::tiles_n][SkinnyPlan<Config>::columns][4];

template <class Config, class Weights>
__device__ __forceinline__ void warp_skinny_unit(SkinnySums<Config>& sums, Weights& weights,
                                                 Operands<Config>& operands,
                                                 const u32 (&bias_fragment)[4], int u) {
  using Plan = SkinnyPlan<Config>;
  using Activation = typename Config::Activation;
  using Codes = Int4<Activation>;
  constexpr int chains =
      Plan::columns == 1 ? 2 : 1;  // one column alone leaves the tensor core waiting for itself

  u32 b[Plan::columns][8][2];
  operands.acquire(u);
  operands.fragments(b, u);
  __syncwarp();
  operands.issue_scales(u + Config::x_stages);
  operands.issue_x(u + Config::x_stages);

  float bias[Plan::columns][4] = {};
  if constexpr (!Config::exact_codes) {
#pragma unroll
    for (int s = 0; s < 8; ++s)
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
        Activation::warp_multiply(bias[c], bias_fragment, b[c][s]);
  }

#pragma unroll
  for (int t = 0; t < Config::tiles_n; ++t) {
    if (t % Plan::stage_tiles == 0) weights.open(t);
    float product[chains][Plan::columns][4] = {};
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) product[0][c][i] = bias[c][i];
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      u32 a[4];
      if constexpr (Config::exact_codes) {
        Codes::exact(a, weights.word(t, s));
      } else {
        Codes::raw(a, weights.word(t, s));
      }
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
        Activation::warp_multiply(product[s % chains][c], a, b[c][s]);
    }
    weights.close(t);
    u32 pair = operands.scale_pair(u, t);
    float low = Activation::widen(static_cast<u16>(pair)),
          high = Activation::widen(static_cast<u16>(pair >> 16));
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float value = product[0][c][i];
        if constexpr (chains == 2) value += product[1][c][i];
        sums[t][c][i] += value * (i < 2 ? low : high);
      }
  }
}

}  // namespace humming
