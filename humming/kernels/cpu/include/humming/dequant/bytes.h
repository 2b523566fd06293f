// Codes of 4 and 8 bits to unsigned bytes, four columns a word, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes bytes in registers.
// Technique: byte products want one unsigned operand: flipping a two's complement code's top bit
//   adds half of its range, which is taken off the sums again.
#pragma once

#include "humming/dequant/unit.h"
#include "humming/dequant/zero_point.h"

namespace humming {

template <class Type>
struct BytesOf {
  static constexpr int bias = 1 << (Type::bits - 1);
  using Unit = humming::Unit<Type::bits>;

  // Column of byte i of term `term`, within the 8 columns of a unit.
  static constexpr int column(int term, int i) {
    return Type::bits == 4 ? term + 2 * i : 4 * term + i;
  }
  // Codes + bias of the four columns of a term.
  template <int term>
  static HUMMING_INLINE Codes bytes(const Unit& unit) {
    if constexpr (Type::bits == 4) {
      return and_xor(shift_right<4 * term>(unit.line[0]), 0x0F0F0F0Fu, 0x08080808u);
    } else {
      return and_xor(unit.line[term], 0xFFFFFFFFu, 0x80808080u);
    }
  }
};

}  // namespace humming
