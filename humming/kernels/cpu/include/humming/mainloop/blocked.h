// The mainloop for large m: a tile of w is dequantized into cache once and used by many rows of
//   x. It only orders named steps.
// Run by all threads; a part is a range of n blocks and of m blocks.
// Reads packed weights and interleaved x -> tile of unscaled w [block_k /
//   term_columns][block_n] and sums [m blocks][block_m][block_n] in the part's share of the
//   workspace -> the output.
// Technique: register tiles over a packed tile, as in GotoBLAS; sums stay in fp32 from one group
//   to the next, each scaled once.
#pragma once

#include "humming/epilogue/output.h"
#include "humming/mainloop/legality.h"
#include "humming/memory/activation_for.h"

namespace humming {

template <class Config>
struct Mainloop {
  static_assert(check_legality<Config>(), "legal");
  using Product = typename Config::Product;
  using Factor = typename Product::Factor;
  using Sum = typename Product::Sum;
  using Unit = typename Product::Unit;
  using X = ActivationFor<Config>;
  using Weight = PackedWeight<Config>;
  static constexpr int block_m = Config::block_m;
  static constexpr int block_n = Config::block_n;
  static constexpr int block_k = Config::block_k;
  static constexpr int tile_panels = block_n / kLanes;
  static constexpr int kPartsPerThread = 4;  // evens out threads that are slowed by others
  // m blocks that share a dequantized tile: enough to hide its cost, few enough for their sums to
  // stay in the L2 cache.
  static constexpr int64_t kBlocksAtOnce = ceil_div(256, block_m);
  static constexpr int64_t kTileFactors = block_k / Product::term_columns * block_n;

  static int64_t workspace_floats(int64_t m, int64_t n, int64_t k, int64_t threads) {
    return X::workspace_floats(m, k) + Parts(m, n, threads).count() * part_floats(m);
  }

  template <class Out>
  static void run(const X& x, const Weight& w, const Out& out, float* workspace,
                  const Workers& workers) {
    const Parts parts(out.m, w.n, workers.threads);
    workers.run(parts.count(), [&](int64_t part) {
      const Range m_blocks = parts.m_blocks(part), n_blocks = parts.n_blocks(part);
      float* sums = workspace + part * part_floats(out.m);
      for (int64_t first = m_blocks.begin; first < m_blocks.end; first += kBlocksAtOnce) {
        const Range some = {first, least(first + kBlocksAtOnce, m_blocks.end)};
        for (int64_t n_block = n_blocks.begin; n_block < n_blocks.end; ++n_block) {
          multiply_block(x, w, out, some, n_block, (Factor*)sums, sums + kTileFactors);
        }
      }
    });
  }

 private:
  // n blocks are shared out first, as each is dequantized once; m blocks only where there are fewer
  // n blocks than threads.
  struct Parts {
    int64_t all_m, all_n, m_parts, n_parts;

    Parts(int64_t m, int64_t n, int64_t threads)
        : all_m(ceil_div(m, block_m)), all_n(ceil_div(n, block_n)) {
      n_parts = threads > 1 ? least(all_n, threads * kPartsPerThread) : 1;
      m_parts = all_n < threads ? most(1, least(all_m, ceil_div(threads, all_n))) : 1;
    }
    int64_t count() const { return m_parts * n_parts; }
    Range m_blocks(int64_t part) const { return piece(all_m, part % m_parts, m_parts); }
    Range n_blocks(int64_t part) const { return piece(all_n, part / m_parts, n_parts); }
  };

  static int64_t part_floats(int64_t m) {
    return kTileFactors + least(ceil_div(m, block_m), kBlocksAtOnce) * block_m * block_n;
  }

  template <class Out>
  static void multiply_block(const X& x, const Weight& w, const Out& out, Range m_blocks,
                             int64_t n_block, Factor* tile, float* sums) {
    const int64_t all_columns = w.units() * Unit::columns;
    for (int64_t first_k = 0; first_k < all_columns; first_k += block_k) {
      const int64_t last_k = least(first_k + block_k, all_columns);
      dequantize_tile(w, n_block * tile_panels, first_k, last_k, tile);
      for (int64_t m_block = m_blocks.begin; m_block < m_blocks.end; ++m_block) {
        float* block_sums = sums + (m_block - m_blocks.begin) * block_m * block_n;
        for (int64_t k = first_k; k < last_k;) {
          const int64_t end = least(end_of_group(w, k), last_k);
          multiply_columns(x, m_block, tile + (k - first_k) / Product::term_columns * block_n, w,
                           n_block * tile_panels, {k, end}, block_sums);
          k = end;
        }
      }
    }
    for (int64_t m_block = m_blocks.begin; m_block < m_blocks.end; ++m_block) {
      const float* block_sums = sums + (m_block - m_blocks.begin) * block_m * block_n;
      for (int row = 0; row < block_m; ++row) {
        for (int p = 0; p < tile_panels; ++p) {
          out.write(m_block * block_m + row, n_block * tile_panels + p,
                    load(block_sums + row * block_n + p * kLanes));
        }
      }
    }
  }

  // Where the columns end that share the scale of column k.
  static int64_t end_of_group(const Weight& w, int64_t k) {
    if constexpr (!Weight::has_scales) return w.units() * Unit::columns;
    const int64_t group = w.group_of(k);
    return group + 1 < w.groups() ? (group + 1) * Weight::group_size : w.units() * Unit::columns;
  }

  // tile [(last_k - first_k) / term_columns][block_n] = codes as numbers, less their zero points,
  // without their scales
  static void dequantize_tile(const Weight& w, int64_t first_panel, int64_t first_k, int64_t last_k,
                              Factor* tile) {
    constexpr int unit_terms = Unit::columns / Product::term_columns;
    constexpr int segments = Unit::columns / Weight::segment_columns;
    constexpr int segment_terms = unit_terms / segments;
    for (int p = 0; p < tile_panels; ++p) {
      const uint32_t* codes = w.unit_codes(first_panel + p, first_k / Unit::columns);
      Factor* to = tile + p * kLanes;
      for (int64_t k = first_k; k < last_k; k += Unit::columns) {
        const Unit unit = Unit::load(codes);
        static_for<segments>([&](auto s) {
          const auto zero_point = zero_of(w, first_panel + p, k + s * Weight::segment_columns);
          static_for<segment_terms>([&](auto i) {
            constexpr int term = s * segment_terms + i;
            Product::store_values(to + term * block_n,
                                  Product::template decode<term>(unit, zero_point));
          });
        });
        codes += Unit::lines * kLanes;
        to += unit_terms * block_n;
      }
    }
  }

  static HUMMING_INLINE typename Product::Zero zero_of(const Weight& w, int64_t panel, int64_t k) {
    if constexpr (!Product::Dequant::has_zero_points) return {};
    return Product::load_zero(w.panel_zero_points(panel) + w.group_of(k) * kLanes);
  }

  // sums [block_m][block_n] (+)= x block times `columns` of the tile, which share a scale
  static void multiply_columns(const X& x, int64_t m_block, const Factor* tile, const Weight& w,
                               int64_t first_panel, Range columns, float* sums) {
    const Factor* factors = x.block(m_block, columns.begin);
    const int64_t terms = (columns.end - columns.begin) / Product::term_columns;
    Sum sum[block_m][tile_panels];
    static_for<block_m>([&](auto row) {
      static_for<tile_panels>([&](auto p) { sum[row][p] = Product::nothing(); });
    });
    for (int64_t t = 0; t < terms; ++t) {
      typename Product::Values values[tile_panels];
      static_for<tile_panels>(
          [&](auto p) { values[p] = Product::load_values(tile + t * block_n + p * kLanes); });
      static_for<block_m>([&](auto row) {
        const Factor factor = factors[t * block_m + row];
        static_for<tile_panels>(
            [&](auto p) { sum[row][p] = Product::multiply_add(factor, values[p], sum[row][p]); });
      });
    }
    const auto correction = x.correction(m_block, columns.begin, columns.end);
    const int64_t group = w.group_of(columns.begin);
    static_for<tile_panels>([&](auto p) {
      static_for<block_m>([&](auto row) {
        float* to = sums + row * block_n + p * kLanes;
        const Vec before = columns.begin ? load(to) : zero();
        const Vec exact = correction.corrected(sum[row][p], row);
        if constexpr (Weight::has_scales) {
          store(to, fma(exact, load(w.panel_scales(first_panel + p) + group * kLanes), before));
        } else {
          store(to, add(exact, before));
        }
      });
    });
  }
};

}  // namespace humming
