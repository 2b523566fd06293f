// Codes of whole numbers, 1 to 8 bits, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes floats in registers.
// Technique: a code whose bits lie in the mantissa of 2^e, where e gives its lowest bit the
//   weight 1, is the float 2^e + code; taking 2^e away is exact. Flipping a two's complement
//   code's top bit adds half of its range, which goes the same way.
#pragma once

#include "humming/dequant/table.h"
#include "humming/dequant/unit.h"

namespace humming {

template <int bits_, bool is_signed>
struct Integer {
  static constexpr int bits = bits_;
  static constexpr int kTop = is_signed ? 1 << (bits - 1) : 0;  // the weight of a sign bit
  static constexpr bool is_float = false;
  static constexpr int fraction_bits = 0;  // values are multiples of 2^-fraction_bits
  using Unit = humming::Unit<bits>;

  static constexpr float value_of(uint32_t code) {
    return (float)((int)(code ^ (uint32_t)kTop) - kTop);
  }
  static constexpr uint32_t float_bits(uint32_t code) {
    return __builtin_bit_cast(uint32_t, value_of(code));
  }

  // The value of column j of each lane.
  template <int j>
  static HUMMING_INLINE Vec value(const Unit& unit) {
    if constexpr (kHasLookup && bits <= 4) {
      return lookup(unit.template lowest<j>(), kValues<Integer, 16>.of);
    } else if constexpr (bits == 8) {
      constexpr int bit = Unit::template bit_of<j>;
      constexpr int shift = bit < 16 ? 0 : 16;
      return in_place<bit - shift>(shift_right<shift>(unit.template word<j>()));
    } else if constexpr (bits == 4) {
      constexpr int bit = Unit::template bit_of<j>;
      constexpr int shift = bit <= kMantissaBits - bits ? 0 : 20;
      return in_place<bit - shift>(shift_right<shift>(unit.template word<j>()));
    } else if constexpr (Unit::is_one_plane) {
      constexpr int bit = j % (kWordBits / bits) * bits;
      constexpr int at = bit <= kMantissaBits - bits ? bit : 0;
      return in_place<at>(Planes<bits>::template at_bit<j, at>(unit.at));
    } else {
      return in_place<0>(unit.template code<j>());
    }
  }

 private:
  // The value of the code at bit `at` of each lane.
  template <int at>
  static HUMMING_INLINE Vec in_place(Codes word) {
    constexpr int exponent = kMantissaBits - at;
    constexpr uint32_t mask = ((1u << bits) - 1) << at;
    constexpr uint32_t flip = ((127u + exponent) << kMantissaBits) | ((uint32_t)kTop << at);
    constexpr float offset = (float)(1 << exponent) + (float)kTop;
    return sub(and_xor_as_float(word, mask, flip), broadcast(offset));
  }
};

}  // namespace humming
