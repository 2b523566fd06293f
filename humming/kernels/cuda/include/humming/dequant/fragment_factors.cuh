// What is done to the fragments of one group in 16 bits: zero points off, times the scales. The
//   door for families that multiply weights, not codes.
// Run by one thread.
// Reads -> writes: registers.
// Source: own. An integer zero point comes off a code exactly; the product with the scale rounds
//   once.
#pragma once
#include "humming/dequant/integer.cuh"
#include "humming/dequant/small_float.cuh"

namespace humming {

// Of rows g and g + 8, twice in a register each; register i of a fragment is of row g + 8 * (i % 2).
// Scales are multiplied by 2^shift first, for codes that come divided by as much or more.
template <class Codes, class Activation, bool with_scales, bool with_zeros, int shift = 0>
struct FragmentFactors {
  static constexpr u32 one =
      both(static_cast<u32>(Activation::exponent_bias) << Activation::mantissa_bits);
  u32 scale[2], zero[2];

  // Pairs as layout cuda_n16k64 packs them: row g in the low half.
  __device__ __forceinline__ void set(u32 scale_pair, u32 zero_pair) {
    if constexpr (with_scales && shift != 0) {
      constexpr u32 power =
          both(static_cast<u32>(shift + Activation::exponent_bias) << Activation::mantissa_bits);
      scale_pair = Activation::fma(scale_pair, power, negative_zero);
    }
    if constexpr (with_scales) {
      scale[0] = ptx::repeat_low(scale_pair), scale[1] = ptx::repeat_high(scale_pair);
    }
    if constexpr (with_zeros) {  // codes come out less `center`, so it is added again
      const u32 pair = Activation::fma(zero_pair, one | both(0x8000),
                                       both(Codes::Placed::number(Codes::center)));
      zero[0] = ptx::repeat_low(pair), zero[1] = ptx::repeat_high(pair);
    }
  }
  __device__ __forceinline__ void apply(u32 (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (with_zeros) a[i] = Activation::fma(a[i], one, zero[i % 2]);
      if constexpr (with_scales) a[i] = Activation::fma(a[i], scale[i % 2], negative_zero);
    }
  }
};

}  // namespace humming
