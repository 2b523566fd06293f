// 4-bit codes to pairs of bf16 numbers, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes bf16 pairs in registers.
// Technique: a 16-bit shuffle looks up the lowest nibble of both halves of a word at once, so a
//   pair is made of nibbles j and j + 4. The table is there twice, as the shuffle looks at 5 bits.
#pragma once

#include "humming/dequant/int4.h"

namespace humming {

constexpr int kPairDistance = 4;  // columns from the first number of a pair to the second
constexpr uint16_t kSignedNibbleBf16[32] = {
    0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0,  //  0 ..  7
    0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80,  // -8 .. -1
    0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0,
    0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80};

// The signed values of nibbles j and j + 4 of each lane.
template <int j>
HUMMING_INLINE Pairs decode_pair(Codes codes) {
  return lookup_pairs(shift_right<4 * j>(codes), kSignedNibbleBf16);
}

}  // namespace humming
