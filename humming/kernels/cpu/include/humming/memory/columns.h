// Columns of a row of x in the order in which w is stored, those beyond k as zero.
// Run by every thread.
// Reads x [k] of one row, permutation int32 [k] or null -> 32 elements where they lie, or a copy.
// Technique: none.
#pragma once

#include "humming/memory/element.h"

namespace humming {

template <class Element>
struct Columns {
  using Stored = typename Element::Stored;
  const Stored* x;             // row stride ldx
  const int32_t* permutation;  // stored column j is x's column permutation[j]; null: j itself
  int64_t ldx, m, k;

  // Columns first .. first + 31 of `row`; `copy` holds them where they do not lie side by side.
  // Rows past m are zero, as they are computed with the others and not stored.
  HUMMING_INLINE const Stored* step(int64_t row, int64_t first,
                                    Stored (&copy)[kStepColumns]) const {
    const Stored* from = x + row * ldx;
    if (row < m && !permutation && first + kStepColumns <= k) return from + first;
    const int64_t count = row < m ? least(kStepColumns, k - first) : 0;
    std::memset(copy, 0, sizeof(copy));
    for (int64_t i = 0; i < count; ++i) {
      copy[i] = from[permutation ? permutation[first + i] : first + i];
    }
    return copy;
  }
};

}  // namespace humming
