// Bit tricks on 4-bit codes, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes floats in registers.
// Technique: a code whose bits lie in the mantissa of 2^e, where e gives its lowest bit the weight
// 1, is the float 2^e + code; taking 2^e away is exact. Flipping a two's complement code's top bit
// adds 8, which goes the same way.
#pragma once

namespace humming {

// Codes of one step, and the same shifted so that the upper three nibbles lie in a mantissa too.
struct Int4Step {
  Codes lower, upper;
};

constexpr int kNibblesPerWord = 8;
constexpr int kNibblesInMantissa = 5;
constexpr int kUpperShift = 12;  // nibbles 5, 6, 7 come to lie at 2, 3, 4

HUMMING_INLINE Int4Step int4_step(Codes codes) { return {codes, shift_right<kUpperShift>(codes)}; }

// The signed value, -8 .. 7, of nibble j of each lane.
template <int j>
HUMMING_INLINE Vec decode(const Int4Step& step) {
  constexpr bool in_lower = j < kNibblesInMantissa;
  constexpr int bit = 4 * j - (in_lower ? 0 : kUpperShift);
  constexpr int exponent = 23 - bit;
  constexpr uint32_t mask = 0xFu << bit;
  constexpr uint32_t flip = ((127u + exponent) << 23) | (0x8u << bit);
  constexpr float offset = (float)(1 << exponent) + 8.0f;
  return sub(and_xor_as_float(in_lower ? step.lower : step.upper, mask, flip), broadcast(offset));
}

}  // namespace humming
