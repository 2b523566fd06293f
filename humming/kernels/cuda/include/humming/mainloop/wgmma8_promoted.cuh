// How a warpgroup multiplies bytes by bytes where sums leave the tensor cores every 128 columns: to be
//   scaled, or as tensor cores keep few bits of a sum of e4m3 products.
// Run by a warpgroup.
// Reads -> writes: the ring of x, weights and scales of x, scales of weights -> sums in fp32.
// Source: own; promotion as in DeepSeek-V3, arXiv:2412.19437.
#pragma once
#include "humming/mainloop/wgmma8_products.cuh"
#include "humming/memory/wgmma8_scales.cuh"

namespace humming {

// sums += part * scales, of tile `t` from column `first` on.
template <class Config, class T, int columns>
__device__ __forceinline__ void group_promote(Wgmma8Promoted<Config>& sums,
                                              const T (&part)[1][columns][4],
                                              const Ring8Drain<Config>& drain,
                                              const Wgmma8Scales<Config>& scales, int t,
                                              int first) {
  constexpr bool of_x = Config::x_group_size != 0, of_w = Config::group_size != 0;
  const float of_rows[2] = {scales.factor(t, 0), scales.factor(t, 1)};
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    float2 of_tokens = {1.0f, 1.0f};
    if constexpr (of_x) of_tokens = drain.x_scales(first + c);
    if constexpr (of_x && Config::block_scales != 0) {
      of_tokens.x *= of_rows[0];
      of_tokens.y *= of_rows[0];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float of_token = i % 2 ? of_tokens.y : of_tokens.x;
      const float of_row = of_rows[i / 2];
      const float v = static_cast<float>(part[0][c][i]);
      float& sum = sums[t][first + c][i];
      if constexpr (of_x && of_w && Config::block_scales == 0) {
        sum = fmaf(v, of_row * of_token, sum);
      } else if constexpr (of_x) {
        sum = fmaf(v, of_token, sum);
      } else if constexpr (of_w) {
        sum = fmaf(v, of_row, sum);
      } else {
        sum += v;
      }
    }
  }
}

// The products of each unit and part of a tile are waited for and added up in fp32; the other
// warpgroups keep the tensor cores busy meanwhile.
template <class Config, int used = Wgmma8Plan<Config>::columns>
__device__ __forceinline__ void group_multiply_promoted(Wgmma8Promoted<Config>& sums,
                                                        Ring8Drain<Config>& drain,
                                                        Wgmma8Scales<Config>& scales, int units) {
  using Plan = Wgmma8Plan<Config>;
  using Product = ByteProduct<typename Config::Type>;
  constexpr int tiles = Config::tiles_n;
  constexpr int parts = Plan::parts_of(used), columns = used / parts;
  clear_sums(sums);
#pragma unroll 1
  for (int u = 0; u < units; ++u) {
    drain.acquire();
    scales.take();
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      u32 a[Plan::direct ? 1 : Plan::steps][4];
      if constexpr (!Plan::direct) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Words4 words = drain.words(t, half);
#pragma unroll
          for (int step = 0; step < 2; ++step)
            Config::Codes::fragment(a[2 * half + step], words.word, step);
        }
        settle_bytes(a);
      }
#pragma unroll
      for (int p = 0; p < parts; ++p) {
        typename Product::Sum part[1][columns][4];
        const u32 x = drain.x_base(p * columns * 8);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < Plan::steps; ++step) {
          const u64 of_x = drain.descriptor(x, step);
          if constexpr (Plan::direct) {
            const u64 of_w = drain.descriptor(drain.weights_base(t), step);
            if (step == 0) Product::template add<0>(part[0], of_w, of_x);
            if (step != 0) Product::template add<1>(part[0], of_w, of_x);
          } else {
            if (step == 0) Product::template add<0>(part[0], a[step], of_x);
            if (step != 0) Product::template add<1>(part[0], a[step], of_x);
          }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        settle_sums(part);
        group_promote<Config>(sums, part, drain, scales, t, p * columns);
      }
      if constexpr (!Plan::direct) settle_bytes(a);
    }
    drain.release(drain.place.slot);
    drain.next();
  }
}

}  // namespace humming
