// Products of x and w in fp32, one column at a time: what the mainloops multiply with.
// Run by every thread.
// Reads elements of x and codes of w -> factors and values in registers or, by 16, in memory.
// Technique: none.
#pragma once

#include "humming/memory/element.h"

namespace humming {

template <class Dequant_>
struct Fp32Product {
  using Dequant = Dequant_;
  using Factor = float;  // what a row of x has in one term
  using Values = Vec;    // what 16 rows of w have in one term
  using Sum = Vec;       // what is summed of 16 rows of w
  using Unit = typename Dequant::Unit;
  using Zero = typename Dequant::Zero;
  static constexpr int bits = Dequant::Type::bits;
  static constexpr int term_columns = 1;
  static constexpr bool flushes_denormals = false;
  static constexpr bool quantizes_x = false;
  template <class Activation>
  static constexpr bool takes = true;
  static constexpr bool takes_weight = true;

  static HUMMING_INLINE Zero load_zero(const float* from) { return Dequant::load_zero(from); }
  template <int term>
  static HUMMING_INLINE Values decode(const Unit& unit, const Zero& zero) {
    return Dequant::template value<term>(unit, zero);
  }
  static HUMMING_INLINE Sum nothing() { return zero(); }
  static HUMMING_INLINE Sum multiply_add(Factor factor, Values values, Sum sum) {
    return fma(broadcast(factor), values, sum);
  }
  static HUMMING_INLINE Sum add_sums(Sum a, Sum b) { return add(a, b); }
  static HUMMING_INLINE Values load_values(const Factor* from) { return load(from); }
  static HUMMING_INLINE void store_values(Factor* to, Values values) { store(to, values); }

  // The factors of 32 columns of x.
  template <class Element>
  static HUMMING_INLINE void factors(const typename Element::Stored* from, Factor* to) {
    store(to, Element::load16(from));
    store(to + kLanes, Element::load16(from + kLanes));
  }
};

}  // namespace humming
