// Bit tricks on signed 4-bit codes, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes floats in registers.
// Technique: that of integer.h, and a 16-entry lookup that does it all at once where the machine
//   has one; some of each, so that the ports of both are busy.
#pragma once

#include "humming/dequant/integer.h"

namespace humming {

// Codes of one line, and the same shifted so that the upper five nibbles lie in a mantissa too.
struct Int4Unit {
  static constexpr int columns = 8;
  static constexpr int lines = 1;
  static constexpr int kLowerNibbles = 3;
  static constexpr int kUpperShift = 4 * kLowerNibbles;  // nibbles 3 .. 7 come to lie at 0 .. 4
  Codes lower, upper;

  static HUMMING_INLINE Int4Unit load(const uint32_t* lines) {
    const Codes codes = load_codes(lines);
    return {codes, shift_right<kUpperShift>(codes)};
  }
};

struct Int4 {
  static constexpr int bits = 4;
  static constexpr bool is_float = false;
  static constexpr int fraction_bits = 0;
  using Unit = Int4Unit;
  // With a lookup, a nibble at bit 0 needs nothing else, and the last ones are shifted down to it:
  // this mix keeps the ports of shuffles and those of arithmetic about equally busy.
  static constexpr int kFirstShifted = 6;

  static constexpr uint32_t float_bits(uint32_t code) { return Integer<4, true>::float_bits(code); }

  // The value, -8 .. 7, of nibble j of each lane.
  template <int j>
  static HUMMING_INLINE Vec value(const Int4Unit& unit) {
    constexpr bool in_lower = j < Int4Unit::kLowerNibbles;
    constexpr int bit = 4 * j - (in_lower ? 0 : Int4Unit::kUpperShift);
    const Codes& codes = in_lower ? unit.lower : unit.upper;
    if constexpr (kHasLookup && bit == 0) return lookup(codes, kValues<Int4, 16>.of);
    if constexpr (kHasLookup && j >= kFirstShifted) {
      return lookup(shift_right<4 * j>(unit.lower), kValues<Int4, 16>.of);
    }
    constexpr int exponent = kMantissaBits - bit;
    constexpr uint32_t mask = 0xFu << bit;
    constexpr uint32_t flip = ((127u + exponent) << kMantissaBits) | (0x8u << bit);
    constexpr float offset = (float)(1 << exponent) + 8.0f;
    return sub(and_xor_as_float(codes, mask, flip), broadcast(offset));
  }
};

}  // namespace humming
