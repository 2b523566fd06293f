// Stores to the output happen here only: the scales of rows and tokens, bias, one rounding to the
//   output type, and the edge at n.
// Run by every thread, each on its own elements.
// Reads fp32 sums in registers, row scales fp32 [panels][16], token scales fp32 [m] and bias fp32
//   [n] -> writes out [m][n], row stride ldo.
// Technique: a token's scale below 1 comes before the row's, any other after it, so that nothing
//   overflows on the way to a product that is finite.
#pragma once

#include "humming/memory/element.h"

namespace humming {

template <class Element>
struct Output {
  typename Element::Stored* out;
  int64_t ldo, m, n;
  const float* row_scales;    // or null
  const float* token_scales;  // or null
  const float* bias;          // or null

  // The 16 columns of `panel` in `row`; rows past m and columns past n are left alone.
  HUMMING_INLINE void write(int64_t row, int64_t panel, Vec sum) const {
    const int64_t column = panel * kLanes;
    const int64_t count = least(kLanes, n - column);
    if (row >= m || count <= 0) return;
    const bool small = token_scales && token_scales[row] < 1.0f;
    if (small) sum = mul(sum, broadcast(token_scales[row]));
    if (row_scales) sum = mul(sum, load(row_scales + column));
    if (token_scales && !small) sum = mul(sum, broadcast(token_scales[row]));
    if (bias) sum = add(sum, load_some<Fp32>(bias + column, count));
    store_some<Element>(out + row * ldo + column, sum, count);
  }
};

}  // namespace humming
