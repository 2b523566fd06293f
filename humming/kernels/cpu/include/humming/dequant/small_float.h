// Codes of floats of 3 to 8 bits, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes floats in registers.
// Technique: with its exponent and mantissa at those of fp32 and the biases' difference added, a
//   normal code is its value v, and a subnormal one is half of 2^lowest too much: its value is
//   2v - 2^lowest, which for a normal one is not less than v. So the value is the smaller of
//   both, and no denormal is ever an operand.
#pragma once

#include "humming/dequant/table.h"
#include "humming/dequant/unit.h"

namespace humming {

enum class Specials { kNone, kNan, kIeee };  // as humming/spec/dtypes.py says

template <int exponent_bits, int mantissa_bits, Specials specials>
struct SmallFloat {
  static constexpr int bits = 1 + exponent_bits + mantissa_bits;
  static constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int kLowest = 1 - kBias;  // exponent of the smallest normal number
  static constexpr int fraction_bits = mantissa_bits - kLowest;  // values are multiples of 2^-this
  static constexpr uint32_t kSign = 1u << (bits - 1);
  static constexpr bool is_float = true;
  using Unit = humming::Unit<bits>;

  // The fp32 pattern of a code's value.
  static constexpr uint32_t float_bits(uint32_t code) {
    const uint32_t sign = (code & kSign) ? 0x80000000u : 0;
    const uint32_t magnitude = code & (kSign - 1);
    uint32_t exponent = magnitude >> mantissa_bits;
    uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
    if (magnitude > kLargest) return sign | 0x7F800000u | special_mantissa(mantissa);
    if (magnitude == 0) return sign;
    int power = (int)exponent - kBias;
    if (exponent == 0) {
      for (power = kLowest; !(mantissa >> mantissa_bits); --power) mantissa <<= 1;
      mantissa &= (1u << mantissa_bits) - 1;
    }
    return sign | (uint32_t)(127 + power) << kMantissaBits |
           mantissa << (kMantissaBits - mantissa_bits);
  }

  // The values, as bf16 numbers, of the codes in the low bits of the halves of each lane, where the
  // machine looks them up; of less than 8 bits, other bits must be zero.
  static HUMMING_INLINE Codes halves(Codes codes) {
    if constexpr (bits <= 5) return lookup_pairs(codes, kBf16Values<SmallFloat, 32>.of);
    const Codes low = lookup_pairs(codes, kBf16Values<SmallFloat, 64>.of);
    if constexpr (bits == 6) return low;
    const Codes high = lookup_pairs(codes, kBf16Values<SmallFloat, 64, 64>.of);
    const Codes found = choose_by_bit<6>(codes, high, low);
    if constexpr (bits == 7) return found;
    return and_or(shift_left<8>(codes), 0x80008000u, found);
  }

  // The value of column j of each lane.
  template <int j>
  static HUMMING_INLINE Vec value(const Unit& unit) {
    if constexpr (kHasLookup && bits <= 4) {
      return lookup(unit.template lowest<j>(), kValues<SmallFloat, 16>.of);
    } else if constexpr (kHasPairLookup && bits == 8) {
      constexpr int byte = j % 4;
      const Codes pair = halves(shift_right<byte % 2 * 8>(unit.template word<j>()));
      return as_float(byte < 2 ? shift_left<16>(pair) : and_xor(pair, 0xFFFF0000u, 0));
    } else if constexpr (kHasPairLookup && bits > 4) {
      return as_float(shift_left<16>(halves(unit.template code<j>())));
    } else if constexpr (kHasSmallLookup && bits == 4) {
      const Codes code = unit.template lowest<j>();
      const Vec magnitude = lookup_magnitude(code, kValues<SmallFloat, 8>.of);
      return as_float(and_or(moved<bits - 1, 31>(code), 0x80000000u, as_codes(magnitude)));
    } else {
      constexpr int below = kMantissaBits - mantissa_bits;  // bits of fp32's mantissa that are zero
      constexpr uint32_t lowest = (uint32_t)(127 + kLowest) << kMantissaBits;
      const Codes code = unit.template code<j, below>();
      const Codes magnitude = and_xor(code, (kSign - 1) << below, 0);
      const Vec normal = as_float(add_each(magnitude, (127u - kBias) << kMantissaBits));
      const Vec subnormal =
          fma(normal, broadcast(2.0f), broadcast(-__builtin_bit_cast(float, lowest)));
      Codes value = as_codes(minimum(normal, subnormal));
      if constexpr (specials != Specials::kNone) {
        value = or_where_above(value, magnitude, kLargest << below,
                               specials == Specials::kNan ? 0x7FC00000u : 0x7F800000u);
      }
      constexpr int sign_at = below + bits - 1;
      return as_float(and_or(moved<sign_at, 31>(code), 0x80000000u, value));
    }
  }

 private:
  // The largest magnitude that is a number.
  static constexpr uint32_t kLargest = kSign - 1 -
                                       (specials == Specials::kNone  ? 0
                                        : specials == Specials::kNan ? 1
                                                                     : 1u << mantissa_bits);
  static constexpr uint32_t special_mantissa(uint32_t mantissa) {
    return specials == Specials::kNan ? 0x400000u : mantissa << (kMantissaBits - mantissa_bits);
  }
};

}  // namespace humming
