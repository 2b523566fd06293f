// The order of a skinny warp's steps: fragments of x once a unit, then every row tile against
//   them, then the scale of each group.
// Run by a whole converged warp.
// Reads -> writes: weight pieces, x and scales through memory/ -> fp32 accumulator fragments.
// Source: own. The bias that raw codes carry, and zero points, are taken away by one more product
//   with x, shared by all row tiles of the group.
#pragma once
#include "humming/dequant/skinny_codes.cuh"
#include "humming/memory/skinny_operands.cuh"

namespace humming {

template <class Config>
using SkinnySums = float[Config::tiles_n][SkinnyPlan<Config>::columns][4];

template <class Config, class Weights>
__device__ __forceinline__ void warp_skinny_unit(SkinnySums<Config>& sums, Weights& weights,
                                                 Operands<Config>& operands,
                                                 const u32 (&bias_fragments)[4][4], int u) {
  using Plan = SkinnyPlan<Config>;
  using Activation = typename Config::Activation;
  using Codes = SkinnyCodes<Config>;
  constexpr int chains =
      Plan::columns == 1 ? 2 : 1;  // one column alone leaves the tensor core waiting for itself
  constexpr int bias_chains = Plan::bias_chains();
  constexpr int steps = 8 / Codes::sums_of_unit;  // k steps whose products are summed, then scaled

  u32 b[Plan::columns][8][2];
  operands.acquire(u);
  operands.fragments(b, u);
  __syncwarp();
  operands.issue_scales(u + Config::x_stages);
  operands.issue_x(u + Config::x_stages);

  float bias[Codes::biases][Plan::columns][4] = {};
  if constexpr (Codes::has_bias && (Codes::biases > 1 || bias_chains == 1)) {
#pragma unroll
    for (int s = 0; s < 8; ++s)
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
        Activation::warp_multiply(bias[s / steps][c], bias_fragments[s % 4], b[c][s]);
  } else if constexpr (Codes::has_bias) {  // one chain would be waited for
    float part[bias_chains][Plan::columns][4] = {};
#pragma unroll
    for (int s = 0; s < 8; ++s)
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
        Activation::warp_multiply(part[s % bias_chains][c], bias_fragments[s % 4], b[c][s]);
#pragma unroll
    for (int chain = 0; chain < bias_chains; ++chain)
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) bias[0][c][i] += part[chain][c][i];
  }

#pragma unroll
  for (int t = 0; t < Config::tiles_n; ++t) {
    if (t % Plan::stage_tiles == 0) weights.open(t);
#pragma unroll
    for (int g = 0; g < Codes::sums_of_unit; ++g) {
      float product[chains][Plan::columns][4] = {};
      if constexpr (Codes::raw) {
#pragma unroll
        for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
          for (int i = 0; i < 4; ++i) product[0][c][i] = bias[g][c][i];
      }
      typename Codes::Factors of_step;
#pragma unroll
      for (int s = g * steps; s < (g + 1) * steps; ++s) {
        u32 a[4];
        if (Codes::begins_group(s)) of_step.load(operands, u, t, Codes::group_of(s));
        Codes::fragment(a, weights.codes_of(t, s / 4).word, s % 4, of_step);
#pragma unroll
        for (int c = 0; c < Plan::columns; ++c)
          Activation::warp_multiply(product[s % chains][c], a, b[c][s]);
      }
      if (g == Codes::sums_of_unit - 1) weights.close(t);
      typename Codes::Scales scales(operands, u, t, g);
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float value = product[0][c][i];
          if constexpr (chains == 2) value += product[1][c][i];
          scales.add(sums[t][c][i], value, bias[Codes::has_bias ? g : 0][c][i], i);
        }
    }
  }
}

}  // namespace humming
