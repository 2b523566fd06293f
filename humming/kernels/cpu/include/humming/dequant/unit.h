// Codes as they lie in lines, and nothing else: where the bits of a column's code are.
// Run by every thread.
// Reads lines of packed codes -> codes of 16 rows in registers.
// Technique: a code of b bits is cut into planes of power-of-two width, the widest first and with
//   the code's high bits, so that no code straddles two words. A unit is the part of a step of 32
//   columns that one turn of a loop decodes: whole lines of every plane.
#pragma once

#include "humming/dequant/table.h"
#include "humming/memory/packed_weight.h"

namespace humming {

// The widest plane of a code of `bits` bits: its highest power of two.
constexpr int widest_plane(int bits) { return bits >= 8 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : 1; }

// `word` with its bit `from` moved to bit `to`.
template <int from, int to>
HUMMING_INLINE Codes moved(Codes word) {
  if constexpr (from > to) return shift_right<from - to>(word);
  if constexpr (from < to) return shift_left<to - from>(word);
  return word;
}

// Planes of `bits` bits from line `first_line` of a step on.
template <int bits, int first_line = 0>
struct Planes {
  static constexpr int width = widest_plane(bits);
  static constexpr int rest = bits - width;  // bits of narrower planes, below this one's
  static constexpr int columns_per_word = kWordBits / width;

  // The code of column j of a step, its lowest bit at bit `at` of each lane; other bits are zero.
  template <int j, int at>
  static HUMMING_INLINE Codes code(const uint32_t* lines) {
    constexpr uint32_t mask = ((1u << width) - 1) << (rest + at);
    if constexpr (rest == 0) {
      return and_xor(at_bit<j, at>(lines), mask, 0);
    } else {
      return and_or(at_bit<j, rest + at>(lines), mask,
                    Planes<rest, first_line + width>::template code<j, at>(lines));
    }
  }
  // Of a single plane: the same, but other bits are anything.
  template <int j, int at>
  static HUMMING_INLINE Codes at_bit(const uint32_t* lines) {
    constexpr int line = first_line + j / columns_per_word;
    constexpr int bit = j % columns_per_word * width;
    return moved<bit, at>(load_codes(lines + line * kLanes));
  }
};

// Of most widths: a whole step, read where it lies.
template <int bits>
struct Unit {
  static constexpr int columns = kStepColumns;
  static constexpr int lines = bits;
  static constexpr bool is_one_plane = widest_plane(bits) == bits;
  const uint32_t* at;

  static HUMMING_INLINE Unit load(const uint32_t* lines) { return {lines}; }
  template <int j, int bit = 0>
  HUMMING_INLINE Codes code() const {
    return Planes<bits>::template code<j, bit>(at);
  }
  // The code of column j in the lowest bits; those above are anything.
  template <int j>
  HUMMING_INLINE Codes lowest() const {
    if constexpr (is_one_plane) return Planes<bits>::template at_bit<j, 0>(at);
    return Planes<bits>::template code<j, 0>(at);
  }
};

// Of 8 and 4 bits: two lines and one, in registers.
template <int line_count>
struct ByteUnit {
  static constexpr int columns = 8;
  static constexpr int lines = line_count;
  static constexpr int bits = 4 * line_count;
  static constexpr int columns_per_word = kWordBits / bits;
  Codes line[line_count];

  static HUMMING_INLINE ByteUnit load(const uint32_t* lines) {
    ByteUnit unit;
    static_for<line_count>([&](auto i) { unit.line[i] = load_codes(lines + i * kLanes); });
    return unit;
  }
  template <int j>
  static constexpr int bit_of = j % columns_per_word * bits;
  template <int j>
  HUMMING_INLINE const Codes& word() const {
    return line[j / columns_per_word];
  }
  template <int j, int at = 0>
  HUMMING_INLINE Codes code() const {
    return and_xor(moved<bit_of<j>, at>(word<j>()), ((1u << bits) - 1) << at, 0);
  }
  template <int j>
  HUMMING_INLINE Codes lowest() const {
    return moved<bit_of<j>, 0>(word<j>());
  }
};
template <>
struct Unit<8> : ByteUnit<2> {
  static HUMMING_INLINE Unit load(const uint32_t* lines) { return {ByteUnit<2>::load(lines)}; }
};
template <>
struct Unit<4> : ByteUnit<1> {
  static HUMMING_INLINE Unit load(const uint32_t* lines) { return {ByteUnit<1>::load(lines)}; }
};

}  // namespace humming
