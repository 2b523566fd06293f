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
#include "humming/memory/activation.h"

namespace humming {

template <class Config>
struct Mainloop {
  static_assert(check_legality<Config>(), "legal");
  using Product = typename Config::Product;
  using Factor = typename Product::Factor;
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
    return Activation<Config>::workspace_floats(m, k) +
           Parts(m, n, threads).count() * part_floats(m);
  }

  template <class Out>
  static void run(const Activation<Config>& x, const PackedWeight& w, const Out& out,
                  float* workspace, const Workers& workers) {
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
  static void multiply_block(const Activation<Config>& x, const PackedWeight& w, const Out& out,
                             Range m_blocks, int64_t n_block, Factor* tile, float* sums) {
    const float* scales[tile_panels];
    for (int p = 0; p < tile_panels; ++p) scales[p] = w.panel_scales(n_block * tile_panels + p);
    for (int64_t first_k = 0; first_k < w.k; first_k += block_k) {
      const int64_t columns = least(block_k, w.k - first_k);
      dequantize_tile(w, n_block * tile_panels, first_k, columns, tile);
      for (int64_t m_block = m_blocks.begin; m_block < m_blocks.end; ++m_block) {
        float* block_sums = sums + (m_block - m_blocks.begin) * block_m * block_n;
        for (int64_t k = 0; k < columns; k += kGroupColumns) {
          multiply_group(x.block(m_block, first_k + k), tile + k / Product::term_columns * block_n,
                         least(kGroupColumns, columns - k) / Product::term_columns, scales,
                         (first_k + k) / kGroupColumns, block_sums);
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

  // tile [columns / term_columns][block_n] = codes as numbers, without their scales
  static void dequantize_tile(const PackedWeight& w, int64_t first_panel, int64_t first_k,
                              int64_t columns, Factor* tile) {
    constexpr int step_terms = kStepColumns / Product::term_columns;
    for (int p = 0; p < tile_panels; ++p) {
      const uint32_t* codes = w.panel_codes(first_panel + p) + first_k / kStepColumns * kLanes;
      Factor* to = tile + p * kLanes;
      for (int64_t s = 0; s < columns / kStepColumns; ++s) {
        const auto step = Product::step(load_codes(codes + s * kLanes));
        static_for<step_terms>([&](auto j) {
          Product::store_values(to + (s * step_terms + j) * block_n,
                                Product::template decode<j>(step));
        });
      }
    }
  }

  // sums [block_m][block_n] (+)= x [terms][block_m] times tile [terms][block_n], scaled
  static void multiply_group(const Factor* x, const Factor* tile, int64_t terms,
                             const float* const (&scales)[tile_panels], int64_t group,
                             float* sums) {
    Vec sum[block_m][tile_panels];
    static_for<block_m>(
        [&](auto row) { static_for<tile_panels>([&](auto p) { sum[row][p] = zero(); }); });
    for (int64_t t = 0; t < terms; ++t) {
      typename Product::Values values[tile_panels];
      static_for<tile_panels>(
          [&](auto p) { values[p] = Product::load_values(tile + t * block_n + p * kLanes); });
      static_for<block_m>([&](auto row) {
        const Factor factor = x[t * block_m + row];
        static_for<tile_panels>(
            [&](auto p) { sum[row][p] = Product::multiply_add(factor, values[p], sum[row][p]); });
      });
    }
    static_for<tile_panels>([&](auto p) {
      const Vec scale = load(scales[p] + group * kLanes);
      static_for<block_m>([&](auto row) {
        float* to = sums + row * block_n + p * kLanes;
        store(to, fma(sum[row][p], scale, group ? load(to) : zero()));
      });
    });
  }
};

}  // namespace humming
