// Stores to a matrix of dequantized weights happen here only.
// Run by every thread, each on its own elements.
// Reads fp32 values in registers -> writes matrix fp32 [k][row_stride].
// Technique: none.
#pragma once

#include "humming/memory/packed_weight.h"

namespace humming {

struct Matrix {
  float* to;
  const int32_t* permutation;  // or null
  int64_t row_stride, k;

  // Column `column` of the 16 rows of w of the matrix's panel `panel`; those beyond k are left out.
  HUMMING_INLINE void write(int64_t column, int64_t panel, Vec values) const {
    if (column >= k) return;
    const int64_t row = permutation ? permutation[column] : column;
    store(to + row * row_stride + panel * kLanes, values);
  }
};

}  // namespace humming
