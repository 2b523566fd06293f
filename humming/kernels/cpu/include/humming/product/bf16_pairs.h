// Products of x and w in bf16, two columns at a time, summed in fp32: what the mainloops multiply
//   with where the CPU has the instruction.
// Run by every thread.
// Reads elements of x and codes of w -> factors and values in registers or, by 16, in memory.
// Technique: x is bf16 and a code's value is exact in bf16, so only sums are rounded. Denormals,
//   which the instruction takes as zero, are mainloop/tiny_rows.h's.
#pragma once

#include "humming/dequant/pairs.h"
#include "humming/memory/element.h"

namespace humming {

template <int distance>
constexpr Table<uint16_t, kStepColumns> pair_order() {
  Table<uint16_t, kStepColumns> order = {};
  for (int i = 0; i < kStepColumns; ++i) {
    const int pair = i / 2;
    order.of[i] = (uint16_t)(pair / distance * 2 * distance + pair % distance + i % 2 * distance);
  }
  return order;
}
// The columns of a step, those of a pair side by side.
template <int distance>
constexpr Table<uint16_t, kStepColumns> kPairOrder = pair_order<distance>();

template <class Dequant_>
struct Bf16PairProduct {
  using Dequant = Dequant_;
  using Source = PairsOf<Dequant>;
  using Factor = uint32_t;  // what a row of x has in one term: two bf16 numbers
  using Values = Pairs;     // what 16 rows of w have in one term
  using Sum = Vec;          // what is summed of 16 rows of w
  using Unit = typename Source::Unit;
  using Zero = typename Source::Zero;
  static constexpr int bits = Dequant::Type::bits;
  static constexpr int term_columns = 2;
  static constexpr bool flushes_denormals = true;
  static constexpr bool quantizes_x = false;
  template <class Activation>
  static constexpr bool takes = std::is_same_v<Activation, Bf16>;
  static constexpr bool takes_weight = Dequant::is_whole;

  static HUMMING_INLINE Zero load_zero(const float* from) { return Source::load_zero(from); }
  template <int term>
  static HUMMING_INLINE Values decode(const Unit& unit, const Zero& zero) {
    return Source::template pair<term>(unit, zero);
  }
  static HUMMING_INLINE Sum nothing() { return zero(); }
  static HUMMING_INLINE Sum multiply_add(Factor factor, Values values, Sum sum) {
    return add_products(sum, broadcast_pair(factor), values);
  }
  static HUMMING_INLINE Sum add_sums(Sum a, Sum b) { return add(a, b); }
  static HUMMING_INLINE Values load_values(const Factor* from) { return load_pairs(from); }
  static HUMMING_INLINE void store_values(Factor* to, Values values) { store_pairs(to, values); }

  // The factors of 32 columns of x, paired as the codes of w are.
  template <class Element>
  static HUMMING_INLINE void factors(const typename Element::Stored* from, Factor* to) {
    store_pairs(to, load_in_order(from, kPairOrder<Source::distance>.of));
  }
};

}  // namespace humming
