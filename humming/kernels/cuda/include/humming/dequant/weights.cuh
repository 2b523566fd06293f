// Codes of one k step -> the weights themselves, (code - zero point) * scale, rounded once to the
//   activation's type.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers; scales and zero points from global memory -> registers.
// Source: own. Where one product in 16 bits is the whole of it, it rounds once; everything else
//   goes through fp32.
#pragma once
#include "humming/dequant/integer.cuh"
#include "humming/dequant/small_float.cuh"
#include "humming/memory/group_values.cuh"
#include "humming/scheduler/dequantize.cuh"

namespace humming {

// Config::group_size: columns of a scale; 0 = rows alone have scales. Config::wide: through fp32.
template <class Config>
struct DequantizedWeights {
  using Activation = typename Config::Activation;
  using Scale = typename Config::Scale;
  static constexpr int bits = Config::WideCodes::bits, size = Config::group_size;
  static constexpr bool grouped = size > 0;
  static constexpr bool by_step = size % 16 == 0;  // a step of 16 columns is in one group
  static constexpr int groups_of_tile = grouped && by_step && size < 64 ? 64 / size : 1;
  struct OfTile {
    u32 scale[groups_of_tile], zero[groups_of_tile];
  };

  GroupValues scales, zeros;
  float low_row = 1.0f, high_row = 1.0f;

  __device__ __forceinline__ DequantizedWeights(const DequantizeCall& call, int row_tile, int lane)
      : scales(call.scales, row_tile, groups(call.k), lane),
        zeros(call.zero_points, row_tile, groups(call.k), lane),
        t2(lane % 4 * 2) {
    if constexpr (Config::has_row_scales) {
      low_row = ptx::load_global_f32(call.row_scales + row_tile * 16 + lane / 4);
      high_row = ptx::load_global_f32(call.row_scales + row_tile * 16 + lane / 4 + 8);
    }
  }

  __device__ __forceinline__ void load(OfTile& of, int tile) const {
    if constexpr (grouped && by_step) {
#pragma unroll
      for (int g = 0; g < groups_of_tile; ++g) {
        const int group = size < 64 ? tile * groups_of_tile + g : tile / (size / 64);
        of.scale[g] = scales.pair(group);
        if constexpr (Config::has_zero_points) of.zero[g] = zeros.pair(group);
      }
    }
  }

  __device__ __forceinline__ void fragment(u32 (&a)[4], const CodeWords<bits>& codes,
                                           const OfTile& of, int tile, int step) const {
    const int g = groups_of_tile > 1 ? step * groups_of_tile / 4 : 0;
    if constexpr (!Config::wide) {
      Config::Codes::fragment(a, codes.word, step);
      const u32 low = ptx::repeat_low(of.scale[g]), high = ptx::repeat_high(of.scale[g]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = Activation::fma(a[i], i % 2 == 0 ? low : high, negative_zero);
    } else {
      float2 v[4];
      Config::WideCodes::wide(v, codes.word, step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = tile * 64 + step * 16 + i / 2 * 8 + t2;
        a[i] = Activation::pack(weight(v[i].x, of, g, i, column),
                                weight(v[i].y, of, g, i, column + 1));
      }
    }
  }

 private:
  int t2;

  // Groups along a row, as they are packed: whole ones of 128 columns.
  static __device__ __forceinline__ int groups(int k) {
    if constexpr (!grouped) return 0;
    return (k + 127) / 128 * (128 / (grouped ? size : 128));
  }

  // The weight of a code's value, of rows g (i even) or g + 8.
  __device__ __forceinline__ float weight(float value, const OfTile& of, int g, int i,
                                          int column) const {
    if constexpr (grouped) {
      u32 scale = of.scale[g], zero = of.zero[g];
      if constexpr (!by_step) {
        const int group = column / size;
        scale = scales.pair(group);
        if constexpr (Config::has_zero_points) zero = zeros.pair(group);
      }
      if constexpr (Config::has_zero_points) value -= half(zero, i) - Config::WideCodes::center;
      value *= half(scale, i);
    }
    if constexpr (Config::has_row_scales) value *= i % 2 == 0 ? low_row : high_row;
    return value;
  }
  static __device__ __forceinline__ float half(u32 pair, int i) {
    return Scale::widen(static_cast<u16>(i % 2 == 0 ? pair : pair >> 16));
  }
};

}  // namespace humming
