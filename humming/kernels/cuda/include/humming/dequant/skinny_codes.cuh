// How the skinny family takes a format apart: what of (code - zero point) * scale is done to a
//   fragment in 16 bits, and what to a group's sums in fp32.
// Run by a whole converged warp.
// Reads -> writes: registers; scales and zero points of the operands -> registers.
// Source: own. Scales are applied to sums in fp32 where a group has two k steps or more, else to
//   the fragments. Zero points come off sums, by the sum of x, where the codes keep their bias or
//   the zero point is a float; else off the fragments, which is exact.
#pragma once
#include "humming/dequant/fragment_factors.cuh"

namespace humming {

template <class Config>
struct SkinnyCodes {
  using Codes = typename Config::Codes;
  using Activation = typename Config::Activation;
  using Scale = typename Config::Scale;
  static constexpr int left = 40;
  static constexpr int size = Config::group_size;  // columns of a scale; 0 = rows alone have scales
  // Floats in bf16 want a product each for their exponents' bias; the scale joins it, and a part of
  // the bias is left to the sums, so that neither runs out of exponents.
  static constexpr bool scale_mends = Codes::is_float && Codes::lift > 2 * left&& size > 0;
  static constexpr bool in_fragment =
      size == 16 || scale_mends || (Config::warpgroup && 0 < size && size < 128);  // scales
  // In fp16 floats are exact without that product, and all of it is left to the sums.
  static constexpr bool lifted =
      scale_mends || (Codes::is_float && Codes::lift <= 15 && !in_fragment);
  static constexpr int final_exponent = scale_mends ? left : lifted ? Codes::lift : 0;
  static constexpr int sums_of_unit = size >= 32 && !in_fragment ? 128 / size : 1;
  static constexpr bool shares_bias = size == 0 || size == 128 || (size == 64 && !in_fragment);
  static constexpr bool raw = Codes::has_raw && Config::exact_codes == 0 && shares_bias &&
                              (!Config::has_zero_points || Codes::even_bias);
  static constexpr bool zeros_off_sums =
      Config::has_zero_points && shares_bias && (raw || Config::float_zero_points);
  static constexpr bool zeros_off_fragment = Config::has_zero_points && !zeros_off_sums;
  static constexpr bool has_bias = raw || zeros_off_sums;
  static constexpr int biases = has_bias ? sums_of_unit : 1;
  static_assert(!in_fragment || !zeros_off_sums);

  // The A fragment of the product with x that is shared: minus the codes' bias, or one.
  static __device__ constexpr u32 bias_register(int step, int i) {
    if constexpr (raw) {
      return Codes::negative_bias(step, i);
    } else {
      return both(static_cast<u32>(Activation::exponent_bias) << Activation::mantissa_bits);
    }
  }

  static __device__ __forceinline__ bool begins_group(int s) {
    return (in_fragment || zeros_off_fragment) && (size == 0 || s % (size / 16) == 0);
  }
  static __device__ __forceinline__ int group_of(int s) { return size ? s * 16 / size : 0; }

  // What fragments of one group are changed by.
  struct Factors : FragmentFactors<Codes, Activation, in_fragment, zeros_off_fragment,
                                   scale_mends ? Codes::lift - left : 0> {
    template <class Operands>
    __device__ __forceinline__ void load(const Operands& operands, int u, int t, int group) {
      const u32 scales = in_fragment ? operands.scale_pair(u, t, group) : 0;
      const u32 zeros = zeros_off_fragment ? operands.zero_pair(u, t, group) : 0;
      this->set(scales, zeros);
    }
  };

  static __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[Codes::bits],
                                                  int step, const Factors& of) {
    if constexpr (raw) {
      Codes::raw(a, words, step);
    } else if constexpr (lifted) {
      Codes::lifted(a, words, step);
    } else {
      Codes::fragment(a, words, step);
    }
    of.apply(a);
  }

  // What the sums of one group are multiplied by, and how much of the shared product comes off.
  struct Scales {
    static constexpr float power = static_cast<float>(1ull << final_exponent);
    float scale[2], of_bias[2];

    template <class Operands>
    __device__ __forceinline__ Scales(const Operands& operands, int u, int t, int g) {
      if constexpr (size > 0 && !in_fragment) {
        const u32 pair = operands.scale_pair(u, t, g);
        scale[0] = Scale::widen(static_cast<u16>(pair));
        scale[1] = Scale::widen(static_cast<u16>(pair >> 16));
        if constexpr (final_exponent != 0) scale[0] *= power, scale[1] *= power;
      }
      if constexpr (zeros_off_sums) {
        constexpr float unit = raw ? 1.0f / Codes::bias(0, 0) : -1.0f;
        const u32 pair = operands.zero_pair(u, t, g);
        of_bias[0] = (Scale::widen(static_cast<u16>(pair)) - Codes::center) * unit;
        of_bias[1] = (Scale::widen(static_cast<u16>(pair >> 16)) - Codes::center) * unit;
      }
    }
    __device__ __forceinline__ void add(float& sum, float value, float bias, int i) const {
      if constexpr (zeros_off_sums) value += bias * of_bias[i / 2];
      if constexpr (size > 0 && !in_fragment) {
        sum += value * scale[i / 2];
      } else if constexpr (final_exponent != 0) {
        sum += value * power;
      } else {
        sum += value;
      }
    }
  };
};

}  // namespace humming
