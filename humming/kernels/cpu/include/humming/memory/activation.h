// x as the mainloops read it: factors of products, rows interleaved in blocks of block_m, so that
//   one term's rows lie side by side.
// Run by all threads, by parts.
// Reads x [m][k] of any element type -> writes factors [ceil(m / block_m)][steps * 32 /
//   term_columns][block_m] in the workspace.
// Technique: interleaving keeps rows that are a power of two apart from falling on one set of
//   the L1 cache.
#pragma once

#include "humming/memory/columns.h"

namespace humming {

// What a row of a block leaves to its sums in whole numbers: nothing here.
struct NoCorrection {
  HUMMING_INLINE Vec corrected(Vec sum, int) const { return sum; }
};

template <class Config>
struct Activation {
  using Element = typename Config::Activation;
  using Product = typename Config::Product;
  using Factor = typename Product::Factor;
  using Correction = NoCorrection;
  static constexpr int block_m = Config::block_m;
  static constexpr int step_factors = kStepColumns / Product::term_columns;
  // A single row of fp32 factors is read where it is, if nothing of it is missing.
  static constexpr bool may_lie_in_place =
      block_m == 1 && std::is_same_v<typename Element::Stored, Factor> && !Config::is_permuted;

  const Factor* rows;
  int64_t block_stride;  // factors from one block of rows to the next

  // The rows of a block, from a column on.
  const Factor* block(int64_t m_block, int64_t first_column) const {
    return rows + m_block * block_stride + first_column / Product::term_columns * block_m;
  }
  // What is to be taken off sums over columns begin .. end - 1 of a block.
  Correction correction(int64_t, int64_t, int64_t) const { return {}; }
  const float* token_scales() const { return nullptr; }

  static bool lies_in_place(int64_t k) { return may_lie_in_place && k % kStepColumns == 0; }
  static int64_t workspace_floats(int64_t m, int64_t k) {
    return lies_in_place(k)
               ? 0
               : ceil_div(m, block_m) * block_m * ceil_div(k, kStepColumns) * step_factors;
  }

  static Activation prepare(const Columns<Element>& x, float* workspace, const Workers& workers) {
    if constexpr (may_lie_in_place) {
      if (lies_in_place(x.k)) return {x.x, x.ldx};
    }
    constexpr int64_t kChunk = 1024;            // columns a part
    constexpr int64_t kWorthSharing = 1 << 15;  // elements below which waking threads costs more
    const int64_t chunks = ceil_div(x.k, kChunk), blocks = ceil_div(x.m, block_m);
    const int64_t block_stride = ceil_div(x.k, kStepColumns) * step_factors * block_m;
    Factor* rows = (Factor*)workspace;
    const Workers some = {workers.parallel_for, x.m * x.k < kWorthSharing ? 1 : workers.threads};
    some.run(blocks * chunks, [&](int64_t part) {
      const int64_t m_block = part / chunks, first = part % chunks * kChunk;
      interleave(x, m_block, first, least(x.k, first + kChunk), rows + m_block * block_stride);
    });
    return {rows, block_stride};
  }

 private:
  static void interleave(const Columns<Element>& x, int64_t m_block, int64_t begin, int64_t end,
                         Factor* to) {
    for (int row = 0; row < block_m; ++row) {
      for (int64_t column = begin; column < end; column += kStepColumns) {
        typename Element::Stored copy[kStepColumns];
        Factor staged[step_factors];
        Product::template factors<Element>(x.step(m_block * block_m + row, column, copy), staged);
        Factor* block_row = to + column / Product::term_columns * block_m + row;
        for (int i = 0; i < step_factors; ++i) block_row[i * block_m] = staged[i];
      }
    }
  }
};

}  // namespace humming
