// Products of x and w in bf16, two columns at a time, summed in fp32: what the mainloops multiply
//   with where the CPU has the instruction.
// Run by every thread.
// Reads elements of x and codes of w -> factors and values in registers or, by 16, in memory.
// Technique: x is bf16 and a 4-bit code is exact in bf16, so only sums are rounded. Denormals,
//   which the instruction takes as zero, are mainloop/tiny_rows.h's.
#pragma once

#include "humming/memory/element.h"

namespace humming {

struct Bf16PairProduct {
  using Factor = uint32_t;  // what a row of x has in one term: two bf16 numbers
  using Values = Pairs;     // what 16 rows of w have in one term
  using Step = Codes;
  static constexpr int term_columns = 2;
  static constexpr bool flushes_denormals = true;
  static constexpr bool takes_bf16_only = true;

  static HUMMING_INLINE Step step(Codes codes) { return codes; }
  template <int term>
  static HUMMING_INLINE Values decode(Step codes) {
    return decode_pair<term>(codes);
  }
  static HUMMING_INLINE Vec multiply_add(Factor factor, Values values, Vec sum) {
    return add_products(sum, broadcast_pair(factor), values);
  }
  static HUMMING_INLINE Values load_values(const Factor* from) { return load_pairs(from); }
  static HUMMING_INLINE void store_values(Factor* to, Values values) { store_pairs(to, values); }

  // The 16 factors of 32 columns of x, paired as the codes of a step are.
  template <class Element>
  static HUMMING_INLINE void factors(const typename Element::Stored* from, Factor* to) {
    store_pairs(to, load_in_order(from, kOrder));
  }

 private:
  // Columns j and j + kPairDistance of each step side by side.
  static constexpr uint16_t kOrder[32] = {0,  4,  1,  5,  2,  6,  3,  7,  8,  12, 9,
                                          13, 10, 14, 11, 15, 16, 20, 17, 21, 18, 22,
                                          19, 23, 24, 28, 25, 29, 26, 30, 27, 31};
};

}  // namespace humming
