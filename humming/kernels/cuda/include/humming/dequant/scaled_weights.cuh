// Codes of one k step -> weights times a power of two, rounded once: for sums that stay in tensor
//   cores over all groups of k.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers.
// Source: own. In bf16 whole numbers below 256 in the lowest bits are that number times 2^-133, the
//   lowest bit of the exponent included: a single product and sum takes the scale on and the codes'
//   offset off.
#pragma once
#include "humming/dequant/fragment_factors.cuh"

namespace humming {

template <class Activation>
__device__ constexpr u32 power_of_two(int exponent) {
  return static_cast<u32>(exponent + Activation::exponent_bias) << Activation::mantissa_bits;
}

// Weights come divided by 2^lift. `set` takes pairs as layout cuda_n16k64 packs them, row g in the
// low half; `half` of a step's columns is WideWeights' alone.
template <class Codes, class Activation, bool with_scales, bool with_zeros>
struct ScaledWeights {
  static constexpr int lift = 0;
  FragmentFactors<Codes, Activation, with_scales, with_zeros> factors;

  __device__ __forceinline__ void set(u32 scale_pair, u32 zero_pair, int /*half*/) {
    factors.set(scale_pair, zero_pair);
  }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[Codes::bits],
                                           int step) const {
    Codes::fragment(a, words, step);
    factors.apply(a);
  }
};

// Where integer codes are in both halves of a register whose other bits are zero, so that as few
// shifts as can be are left.
template <int bits_>
struct LowIntegers {
  static constexpr int bits = bits_;
  using Placed = PlacedIntegers<bits, Bf16>;
  using At = typename Placed::At;

  static __device__ constexpr int place(int i) {
    if (bits == 4) return i % 2 * 4;
    if (bits == 3) return i / 2 * 4;
    if (bits == 2) return i * 2;
    if (bits == 1) return i / 2 * 4 + i % 2;
    return 0;
  }
  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits]) {
    constexpr u32 mask = both(((1u << bits) - 1) << place(i));
    if constexpr (bits == 8) {
      const u32 word = words[At::word(0, step, i)];
      return i % 2 == 0 ? word & mask : ptx::high_bytes(word);
    } else if constexpr (bits == 3) {
      return Placed::template whole<step / 2, i % 2>(words) >> (step % 2 * 8) & mask;
    } else if constexpr (At::count == 1) {
      return words[At::word(0, step, i)] >> (At::bit(0, step, i) - place(i)) & mask;
    } else {
      return Placed::template over<step, i, 0>(0, words);
    }
  }
};

template <int bits, bool with_scales>
struct ScaledWeights<IntegerCodes<bits, Bf16>, Bf16, with_scales, false> {
  static constexpr int lift = 20;  // scales up to 2^14 and down to 2^-98 are exact
  u32 scale[4], offset[2];         // of rows g and g + 8, twice

  __device__ __forceinline__ void set(u32 scale_pair, u32 /*zero_pair*/, int /*half*/) {
    if constexpr (!with_scales) scale_pair = both(power_of_two<Bf16>(0));
    const u32 offsets = ptx::fma_bf16x2(
        scale_pair, both(power_of_two<Bf16>(bits - 1 - lift) | 0x8000), negative_zero);
    offset[0] = ptx::repeat_low(offsets), offset[1] = ptx::repeat_high(offsets);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const u32 scales = ptx::fma_bf16x2(scale_pair, power(i) | power(i + 1) << 16, negative_zero);
      scale[i] = ptx::repeat_low(scales), scale[i + 1] = ptx::repeat_high(scales);
    }
  }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[bits], int step) const {
    registers<LowIntegers<bits>>(a, words, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::fma_bf16x2(a[i], scale[i], offset[i % 2]);
  }

 private:
  static __device__ constexpr u32 power(int i) {
    return power_of_two<Bf16>(133 - lift - LowIntegers<bits>::place(i));
  }
};

// A zero point comes off the code exactly, of both an eighth of an eighth; the scale makes up for it.
template <int bits>
struct ScaledWeights<IntegerCodes<bits, Bf16>, Bf16, true, true> {
  static constexpr int lift = 0, down = 6;  // 2^127 is the largest power of two
  u32 scale[2], zero[2];

  __device__ __forceinline__ void set(u32 scale_pair, u32 zero_pair, int /*half*/) {
    scale_pair = ptx::fma_bf16x2(scale_pair, both(power_of_two<Bf16>(down)), negative_zero);
    zero_pair = ptx::fma_bf16x2(zero_pair, both(power_of_two<Bf16>(-down) | 0x8000), negative_zero);
    scale[0] = ptx::repeat_low(scale_pair), scale[1] = ptx::repeat_high(scale_pair);
    zero[0] = ptx::repeat_low(zero_pair), zero[1] = ptx::repeat_high(zero_pair);
  }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[bits], int step) const {
    registers<LowIntegers<bits>>(a, words, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 power = both(power_of_two<Bf16>(133 - down - LowIntegers<bits>::place(i)));
      a[i] =
          ptx::fma_bf16x2(ptx::fma_bf16x2(a[i], power, zero[i % 2]), scale[i % 2], negative_zero);
    }
  }
};

// Floats want a product each for their exponents' bias, which the scale joins.
template <int exponent_bits, int mantissa_bits, bool with_scales>
struct ScaledWeights<FloatCodes<exponent_bits, mantissa_bits, Bf16>, Bf16, with_scales, false> {
  using Codes = FloatCodes<exponent_bits, mantissa_bits, Bf16>;
  // A part of the bias is left to the sums, so that neither runs out of exponents.
  static constexpr int lift = Codes::lift > 80 ? 40 : 0;
  FragmentFactors<Codes, Bf16, true, false, Codes::lift - lift> factors;

  __device__ __forceinline__ void set(u32 scale_pair, u32 /*zero_pair*/, int /*half*/) {
    factors.set(with_scales ? scale_pair : both(power_of_two<Bf16>(0)), 0);
  }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[Codes::bits],
                                           int step) const {
    Codes::lifted(a, words, step);
    factors.apply(a);
  }
};

// All that is more than one product in 16 bits, through fp32. `halves`: parts of a step's columns
// that have a scale each.
template <class WideCodes, class Activation, class Scale, bool with_zeros, int halves>
struct WideWeights {
  static constexpr int lift = 0;
  float scale[halves][2], zero[halves][2];

  __device__ __forceinline__ void set(u32 scale_pair, u32 zero_pair, int half) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      scale[half][row] = Scale::widen(static_cast<u16>(scale_pair >> row * 16));
      if constexpr (with_zeros)
        zero[half][row] = Scale::widen(static_cast<u16>(zero_pair >> row * 16)) - WideCodes::center;
    }
  }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[WideCodes::bits],
                                           int step) const {
    float2 v[4];
    WideCodes::wide(v, words, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = halves == 2 ? i / 2 : 0;
      if constexpr (with_zeros) v[i].x -= zero[half][i % 2], v[i].y -= zero[half][i % 2];
      a[i] = Activation::pack(v[i].x * scale[half][i % 2], v[i].y * scale[half][i % 2]);
    }
  }
};

// Which of them a config's format takes.
template <class Config>
struct WeightsOf {
  using Codes = typename Config::Codes;
  using Activation = typename Config::Activation;
  using Scale = typename Config::Scale;
  static constexpr int size = Config::group_size, halves = size == 8 ? 2 : 1;
  static constexpr bool wide = Config::float_zero_points || halves == 2 ||
                               (size > 0 && Scale::mantissa_bits != Activation::mantissa_bits);

  template <bool through_fp32, class Unused = void>
  struct Pick {
    using Type = ScaledWeights<Codes, Activation, (size > 0), (Config::has_zero_points != 0)>;
  };
  template <class Unused>
  struct Pick<true, Unused> {
    using Type = WideWeights<typename Config::WideCodes, Activation, Scale,
                             (Config::has_zero_points != 0), halves>;
  };
  using Type = typename Pick<wide>::Type;
};

}  // namespace humming
