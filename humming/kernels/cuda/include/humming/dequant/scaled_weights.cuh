// Codes of one k step -> weights times a power of two, rounded once: for sums that stay in tensor
//   cores over all groups of k.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers.
// Source: own. In bf16 a code in the mantissa of a number without exponent is the code times 2^-133
//   or, three bits higher, 2^-130, without a one above it: a single product and sum takes the scale
//   on and the code's offset off.
#pragma once
#include "humming/dequant/fragment_factors.cuh"

namespace humming {

// Weights come divided by 2^lift.
template <class Codes, class Activation>
struct ScaledWeights {
  static constexpr int lift = 0;
  FragmentFactors<Codes, Activation, true, false> factors;

  // The pair as layout cuda_n16k64 packs it: the scale of row g in the low half.
  __device__ __forceinline__ void set(u32 scale_pair) { factors.set(scale_pair, 0); }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[Codes::bits],
                                           int step) const {
    Codes::fragment(a, words, step);
    factors.apply(a);
  }
};

template <>
struct ScaledWeights<IntegerCodes<4, Bf16>, Bf16> {
  static constexpr int lift = 20;  // scales up to 2^14 and down to 2^-106 are exact
  u32 scale[2], offset[2];         // of rows g and g + 8, twice

  __device__ __forceinline__ void set(u32 scale_pair) {
    const u32 offsets = ptx::fma_bf16x2(scale_pair, both(power(3 - lift) | 0x8000), negative_zero);
    // Row g has codes in the lowest bits of the mantissa, row g + 8 three bits higher.
    const u32 scales =
        ptx::fma_bf16x2(scale_pair, power(133 - lift) | power(130 - lift) << 16, negative_zero);
    scale[0] = ptx::repeat_low(scales), scale[1] = ptx::repeat_high(scales);
    offset[0] = ptx::repeat_low(offsets), offset[1] = ptx::repeat_high(offsets);
  }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[4], int step) const {
    constexpr u32 low = both(0x000F), high = both(0x0078);
    const u32 word = words[step];
    a[0] = ptx::fma_bf16x2(word & low, scale[0], offset[0]);
    a[1] = ptx::fma_bf16x2(word >> 1 & high, scale[1], offset[1]);
    a[2] = ptx::fma_bf16x2(word >> 8 & low, scale[0], offset[0]);
    a[3] = ptx::fma_bf16x2(word >> 9 & high, scale[1], offset[1]);
  }

 private:
  static __device__ constexpr u32 power(int exponent) {
    return static_cast<u32>(exponent + Bf16::exponent_bias) << Bf16::mantissa_bits;
  }
};

}  // namespace humming
