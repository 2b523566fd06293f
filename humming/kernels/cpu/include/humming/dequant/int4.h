// Bit tricks on 4-bit codes, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes floats in registers.
// Technique: a code whose bits lie in the mantissa of 2^e, where e gives its lowest bit the
//   weight 1, is the float 2^e + code; taking 2^e away is exact. Flipping a two's complement
//   code's top bit adds 8, which goes the same way. A 16-entry lookup does it all at once where
//   the machine has one.
#pragma once

namespace humming {

// Codes of one step, and the same shifted so that the upper five nibbles lie in a mantissa too.
struct Int4Step {
  Codes lower, upper;
};

constexpr int kLowerNibbles = 3;
constexpr int kUpperShift = 4 * kLowerNibbles;  // nibbles 3 .. 7 come to lie at 0 .. 4
// With a lookup, a nibble at bit 0 needs nothing else, and the last ones are shifted down to it:
// this mix keeps the ports of shuffles and those of arithmetic about equally busy.
constexpr int kFirstShifted = 6;
constexpr float kSignedNibble[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

HUMMING_INLINE Int4Step int4_step(Codes codes) { return {codes, shift_right<kUpperShift>(codes)}; }

// The signed value, -8 .. 7, of nibble j of each lane.
template <int j>
HUMMING_INLINE Vec decode(const Int4Step& step) {
  constexpr bool in_lower = j < kLowerNibbles;
  constexpr int bit = 4 * j - (in_lower ? 0 : kUpperShift);
  const Codes& codes = in_lower ? step.lower : step.upper;
  if constexpr (kHasLookup && bit == 0) return lookup(codes, kSignedNibble);
  if constexpr (kHasLookup && j >= kFirstShifted) {
    return lookup(shift_right<4 * j>(step.lower), kSignedNibble);
  }
  constexpr int exponent = 23 - bit;
  constexpr uint32_t mask = 0xFu << bit;
  constexpr uint32_t flip = ((127u + exponent) << 23) | (0x8u << bit);
  constexpr float offset = (float)(1 << exponent) + 8.0f;
  return sub(and_xor_as_float(codes, mask, flip), broadcast(offset));
}

}  // namespace humming
