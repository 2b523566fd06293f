// Codes that are floats of 3 to 8 bits -> fragments of one m16n8k16 step, exact. Bit tricks on
//   codes live here.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers; fields as in planes.cuh -> register a[i], low half = even k.
// Source: own. Exponent and mantissa are put where a wider type has its lowest exponent bits and
//   its highest mantissa bits: subnormals stay such, and one product with a power of two mends the
//   exponent's bias of all. All codes count as finite.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/dequant/planes.cuh"

namespace humming {

// A float's bits in the places of `Type`: its value times 2^-lift.
template <int exponent_bits, int mantissa_bits, class Type>
struct PlacedFloats {
  static constexpr int bits = 1 + exponent_bits + mantissa_bits;
  static constexpr int lift = Type::exponent_bias - ((1 << (exponent_bits - 1)) - 1);
  static_assert(exponent_bits <= Type::exponent_bits && mantissa_bits <= Type::mantissa_bits);
  using At = Planes<bits>;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits]) {
    if constexpr (bits == 4 && Type::mantissa_bits - mantissa_bits < 9) {
      // One product moves the sign by 12 bits and the rest by fewer, and neither meets the other.
      constexpr int from = At::bit(0, step, i) % 8, to = Type::mantissa_bits - mantissa_bits;
      const u32 pair = moved<At::bit(0, step, i), from>(words[At::word(0, step, i)]);
      const u32 both_moved =
          (pair & both(15u << from)) * ((1u << (12 - from)) + (1u << to >> from));
      return both_moved & both(0x8000u | 7u << to);
    }
    constexpr int sign_bit = At::bit(0, step, i) + At::width(0) - 1;
    const u32 sign = moved<sign_bit, 15>(words[At::word(0, step, i)]) & both(0x8000);
    return rest<step, i, 0>(sign, words);
  }

  template <int step, int i, int plane>
  static __device__ __forceinline__ u32 rest(u32 a, const u32 (&words)[bits]) {
    if constexpr (plane == At::count) {
      return a;
    } else {
      constexpr int width = At::width(plane) - (plane == 0);  // without the sign
      constexpr int to = Type::mantissa_bits - mantissa_bits + At::low_bit(plane);
      const u32 word = moved<At::bit(plane, step, i), to>(words[At::word(plane, step, i)]);
      constexpr u32 mask = both(((1u << width) - 1) << to);
      return rest<step, i, plane + 1>(ptx::and_or(word, mask, a), words);
    }
  }
};

template <int exponent_bits, int mantissa_bits, class Activation>
struct FloatCodes {
  using Placed = PlacedFloats<exponent_bits, mantissa_bits, Activation>;
  static constexpr int bits = Placed::bits, lift = Placed::lift;
  static constexpr bool is_float = true, has_raw = false, even_bias = false;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits]) {
    const u32 a = Placed::template one<step, i>(words);
    if constexpr (Placed::lift == 0) return a;
    constexpr u32 power = both(static_cast<u32>(Placed::lift + Activation::exponent_bias)
                               << Activation::mantissa_bits);
    return Activation::fma(a, power, negative_zero);
  }
  static __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[bits], int step) {
    registers<FloatCodes>(a, words, step);
  }
  // Without that product: values times 2^-lift.
  static __device__ __forceinline__ void lifted(u32 (&a)[4], const u32 (&words)[bits], int step) {
    registers<Placed>(a, words, step);
  }
};

// The same codes as fp32, for any activation.
template <int exponent_bits, int mantissa_bits>
struct WideFloats {
  using Placed = PlacedFloats<exponent_bits, mantissa_bits, Bf16>;
  static constexpr int bits = Placed::bits;

  // v[i] is the even and the odd k of register i.
  static __device__ __forceinline__ void wide(float2 (&v)[4], const u32 (&words)[bits], int step) {
    const float power = __uint_as_float(static_cast<u32>(Placed::lift + 127) << 23);
    u32 a[4];
    registers<Placed>(a, words, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i].x = Bf16::widen(static_cast<u16>(a[i])) * power;
      v[i].y = Bf16::widen(static_cast<u16>(a[i] >> 16)) * power;
    }
  }
};

}  // namespace humming
