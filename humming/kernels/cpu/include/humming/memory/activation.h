// x as the mainloops read it: factors of products, rows interleaved in blocks of block_m, so that
//   one term's rows lie side by side.
// Run by all threads, by parts.
// Reads x [m][k] of any element type, row stride ldx -> writes factors [ceil(m /
//   block_m)][k / term_columns][block_m] in the workspace.
// Technique: interleaving keeps rows that are a power of two apart from falling on one set of
//   the L1 cache.
#pragma once

#include "humming/memory/element.h"

namespace humming {

template <class Config>
struct Activation {
  using Element = typename Config::Activation;
  using Product = typename Config::Product;
  using Factor = typename Product::Factor;
  static constexpr int block_m = Config::block_m;
  // A single row of fp32 factors is read where it is.
  static constexpr bool in_place = block_m == 1 && std::is_same_v<typename Element::Stored, Factor>;

  const Factor* rows;
  int64_t block_stride;  // factors from one block of rows to the next

  // The rows of a block, from a column on.
  const Factor* block(int64_t m_block, int64_t first_column) const {
    return rows + m_block * block_stride + first_column / Product::term_columns * block_m;
  }

  static int64_t workspace_floats(int64_t m, int64_t k) {
    return in_place ? 0 : ceil_div(m, block_m) * block_m * (k / Product::term_columns);
  }

  static Activation prepare(const typename Element::Stored* x, int64_t ldx, int64_t m, int64_t k,
                            float* workspace, const Workers& workers) {
    if constexpr (in_place) {
      return {x, ldx};
    } else {
      constexpr int64_t kChunk = 1024;            // columns a part
      constexpr int64_t kWorthSharing = 1 << 15;  // elements below which waking threads costs more
      const int64_t chunks = ceil_div(k, kChunk), blocks = ceil_div(m, block_m);
      const int64_t block_stride = k / Product::term_columns * block_m;
      Factor* rows = (Factor*)workspace;
      const Workers some = {workers.parallel_for, m * k < kWorthSharing ? 1 : workers.threads};
      some.run(blocks * chunks, [&](int64_t part) {
        const int64_t m_block = part / chunks, first = part % chunks * kChunk;
        interleave(x, ldx, m, m_block, first, least(k, first + kChunk),
                   rows + m_block * block_stride);
      });
      return {rows, block_stride};
    }
  }

 private:
  static void interleave(const typename Element::Stored* x, int64_t ldx, int64_t m, int64_t m_block,
                         int64_t begin, int64_t end, Factor* to) {
    for (int row = 0; row < block_m; ++row) {
      const int64_t source = m_block * block_m + row;
      for (int64_t column = begin; column < end; column += kLanes * Product::term_columns) {
        // Rows past m are zero: they are computed with the others and not stored.
        Factor staged[kLanes] = {};
        if (source < m) Product::template factors<Element>(x + source * ldx + column, staged);
        Factor* block_row = to + column / Product::term_columns * block_m + row;
        for (int lane = 0; lane < kLanes; ++lane) block_row[lane * block_m] = staged[lane];
      }
    }
  }
};

}  // namespace humming
