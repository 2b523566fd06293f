// The mainloop for large m: a tile of w is dequantized into cache once and used by many rows of
//   x. It only orders named steps.
// Run by all threads; a part is a range of n blocks and of m blocks.
// Reads packed weights and interleaved x -> fp32 tile of w [block_k][block_n] and sums [m
//   blocks][block_m][block_n] in the part's share of the workspace -> the output.
// Technique: register tiles over a packed tile, as in GotoBLAS; sums stay in fp32 from one k
//   block to the next.
#pragma once

#include "humming/epilogue/output.h"
#include "humming/mainloop/legality.h"
#include "humming/memory/activation.h"

namespace humming {

template <class Config>
struct Mainloop {
  static_assert(check_legality<Config>(), "legal");
  static constexpr int block_m = Config::block_m;
  static constexpr int block_n = Config::block_n;
  static constexpr int block_k = Config::block_k;
  static constexpr int tile_panels = block_n / kLanes;
  static constexpr int kPartsPerThread = 4;  // evens out threads that are slowed by others
  // m blocks that share a dequantized tile: enough to hide its cost, few enough for their sums to
  // stay in the L2 cache.
  static constexpr int64_t kBlocksAtOnce = ceil_div(256, block_m);
  static constexpr int64_t kTileFloats = block_k * block_n;

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
      float* tile = workspace + part * part_floats(out.m);
      for (int64_t first = m_blocks.begin; first < m_blocks.end; first += kBlocksAtOnce) {
        const Range some = {first, least(first + kBlocksAtOnce, m_blocks.end)};
        for (int64_t n_block = n_blocks.begin; n_block < n_blocks.end; ++n_block) {
          multiply_block(x, w, out, some, n_block, tile, tile + kTileFloats);
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
    return kTileFloats + least(ceil_div(m, block_m), kBlocksAtOnce) * block_m * block_n;
  }

  template <class Out>
  static void multiply_block(const Activation<Config>& x, const PackedWeight& w, const Out& out,
                             Range m_blocks, int64_t n_block, float* tile, float* sums) {
    for (int64_t first_k = 0; first_k < w.k; first_k += block_k) {
      const int64_t columns = least(block_k, w.k - first_k);
      dequantize_tile(w, n_block * tile_panels, first_k, columns, tile);
      for (int64_t m_block = m_blocks.begin; m_block < m_blocks.end; ++m_block) {
        float* block_sums = sums + (m_block - m_blocks.begin) * block_m * block_n;
        multiply_tile(x.block(m_block) + first_k * block_m, tile, columns, first_k == 0,
                      block_sums);
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

  // tile [columns][block_n] = codes times scales
  static void dequantize_tile(const PackedWeight& w, int64_t first_panel, int64_t first_k,
                              int64_t columns, float* tile) {
    for (int p = 0; p < tile_panels; ++p) {
      const uint32_t* codes = w.panel_codes(first_panel + p) + first_k / kStepColumns * kLanes;
      const float* scales = w.panel_scales(first_panel + p) + first_k / kGroupColumns * kLanes;
      float* to = tile + p * kLanes;
      for (int64_t k = 0; k < columns; k += kStepColumns) {
        const Vec scale = load(scales + k / kGroupColumns * kLanes);
        const Int4Step step = int4_step(load_codes(codes + k / kStepColumns * kLanes));
        static_for<kStepColumns>(
            [&](auto j) { store(to + (k + j) * block_n, mul(decode<j>(step), scale)); });
      }
    }
  }

  // sums [block_m][block_n] (+)= x [columns][block_m] times tile [columns][block_n]
  static void multiply_tile(const float* x, const float* tile, int64_t columns, bool first,
                            float* sums) {
    Vec sum[block_m][tile_panels];
    static_for<block_m>([&](auto row) {
      static_for<tile_panels>(
          [&](auto p) { sum[row][p] = first ? zero() : load(sums + row * block_n + p * kLanes); });
    });
    for (int64_t k = 0; k < columns; ++k) {
      Vec value[tile_panels];
      static_for<tile_panels>([&](auto p) { value[p] = load(tile + k * block_n + p * kLanes); });
      static_for<block_m>([&](auto row) {
        const Vec factor = broadcast(x[k * block_m + row]);
        static_for<tile_panels>([&](auto p) { sum[row][p] = fma(factor, value[p], sum[row][p]); });
      });
    }
    static_for<block_m>([&](auto row) {
      static_for<tile_panels>(
          [&](auto p) { store(sums + row * block_n + p * kLanes, sum[row][p]); });
    });
  }
};

}  // namespace humming
