// Codes to pairs of bf16 numbers, where these are exact, and nothing else.
// Run by every thread.
// Reads codes in registers -> writes bf16 pairs in registers.
// Technique: a 16-bit shuffle looks up both halves of a word at once; where it cannot, two fp32
//   values give their upper halves.
#pragma once

#include "humming/dequant/int4.h"
#include "humming/dequant/integer.h"
#include "humming/dequant/small_float.h"
#include "humming/dequant/zero_point.h"

namespace humming {

enum class PairSource { kNibbles, kNibblesLessZero, kBytes, kTwoCodes, kTwoValues };

template <class Dequant>
constexpr PairSource pair_source() {
  using Type = typename Dequant::Type;
  if (Dequant::has_zero_points) {
    return Type::bits == 4 ? PairSource::kNibblesLessZero : PairSource::kTwoValues;
  }
  if (Type::bits == 8) return Type::is_float ? PairSource::kBytes : PairSource::kTwoValues;
  if (Type::bits == 4) return PairSource::kNibbles;
  return Type::bits <= 6 ? PairSource::kTwoCodes : PairSource::kTwoValues;
}

// How pairs of `Dequant` are made: of columns j and j + distance, where j counts through the first
// `distance` of every 2 * distance columns. This one takes the upper halves of two values.
template <class Dequant, PairSource source = pair_source<Dequant>()>
struct PairsOf {
  static constexpr int distance = 4;
  using Unit = typename Dequant::Unit;
  using Zero = typename Dequant::Zero;

  static HUMMING_INLINE Zero load_zero(const float* from) { return Dequant::load_zero(from); }
  template <int term>
  static HUMMING_INLINE Pairs pair(const Unit& unit, const Zero& zero) {
    constexpr int j = term / distance * 2 * distance + term % distance;
    return pair_of(Dequant::template value<j>(unit, zero),
                   Dequant::template value<j + distance>(unit, zero));
  }
};

// Up to 6 bits: the codes of two columns side by side.
template <class Dequant>
struct PairsOf<Dequant, PairSource::kTwoCodes> {
  static constexpr int distance = 4;
  using Type = typename Dequant::Type;
  using Unit = typename Dequant::Unit;
  struct Zero {};

  static HUMMING_INLINE Zero load_zero(const float*) { return {}; }
  template <int term>
  static HUMMING_INLINE Pairs pair(const Unit& unit, Zero) {
    constexpr int j = term / distance * 2 * distance + term % distance;
    constexpr int entries = Type::bits <= 5 ? 32 : 64;
    const Codes both = and_or(shift_left<16>(unit.template lowest<j + distance>()), 0xFFFF0000u,
                              unit.template code<j>());
    return lookup_pairs(both, kBf16Values<Type, entries>.of);
  }
};

// 4 bits: nibbles j and j + 4 lie in one place of a word's halves.
template <class Dequant>
struct PairsOf<Dequant, PairSource::kNibbles> {
  static constexpr int distance = 4;
  using Type = typename Dequant::Type;
  using Unit = humming::Unit<4>;
  struct Zero {};

  static HUMMING_INLINE Zero load_zero(const float*) { return {}; }
  template <int term>
  static HUMMING_INLINE Pairs pair(const Unit& unit, Zero) {
    return lookup_pairs(shift_right<4 * term>(unit.line[0]), kBf16Values<Type, 32>.of);
  }
};

// The same, less a whole zero point of 0 .. 16: a number of 5 bits, signed.
template <class Dequant>
struct PairsOf<Dequant, PairSource::kNibblesLessZero> {
  static constexpr int distance = 4;
  using Unit = humming::Unit<4>;
  using Zero = Codes;

  static HUMMING_INLINE Zero load_zero(const float* from) { return both_halves(load(from)); }
  template <int term>
  static HUMMING_INLINE Pairs pair(const Unit& unit, const Zero& zero) {
    const Codes nibbles = and_xor(shift_right<4 * term>(unit.line[0]), 0x000F000Fu, 0);
    return lookup_pairs(sub_elements(nibbles, zero), kBf16Values<Integer<5, true>, 32>.of);
  }
};

// Floats of 8 bits: bytes j and j + 2 lie in one place of a word's halves.
template <class Dequant>
struct PairsOf<Dequant, PairSource::kBytes> {
  static constexpr int distance = 2;
  using Type = typename Dequant::Type;
  using Unit = humming::Unit<8>;
  struct Zero {};

  static HUMMING_INLINE Zero load_zero(const float*) { return {}; }
  template <int term>
  static HUMMING_INLINE Pairs pair(const Unit& unit, Zero) {
    return Type::halves(shift_right<8 * (term % 2)>(unit.line[term / 2]));
  }
};

}  // namespace humming
