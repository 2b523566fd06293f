// Products of x and w in fp32, one column at a time: what the mainloops multiply with.
// Run by every thread.
// Reads elements of x and codes of w -> factors and values in registers or, by 16, in memory.
// Technique: none.
#pragma once

#include "humming/memory/element.h"

namespace humming {

struct Fp32Product {
  using Factor = float;  // what a row of x has in one term
  using Values = Vec;    // what 16 rows of w have in one term
  using Step = Int4Step;
  static constexpr int term_columns = 1;
  static constexpr bool flushes_denormals = false;
  static constexpr bool takes_bf16_only = false;

  static HUMMING_INLINE Step step(Codes codes) { return int4_step(codes); }
  template <int term>
  static HUMMING_INLINE Values decode(const Step& step) {
    return humming::decode<term>(step);
  }
  static HUMMING_INLINE Vec multiply_add(Factor factor, Values values, Vec sum) {
    return fma(broadcast(factor), values, sum);
  }
  static HUMMING_INLINE Values load_values(const Factor* from) { return load(from); }
  static HUMMING_INLINE void store_values(Factor* to, Values values) { store(to, values); }

  // The 16 factors of 16 columns of x.
  template <class Element>
  static HUMMING_INLINE void factors(const typename Element::Stored* from, Factor* to) {
    store(to, Element::load16(from));
  }
};

}  // namespace humming
