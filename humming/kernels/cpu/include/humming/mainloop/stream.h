// The decode mainloop: weights go from memory to registers once per block_m rows of x. It only
//   orders named steps.
// Run by all threads; a part is a range of n blocks, or one n block's share of k.
// Reads packed weights and interleaved x -> sums in registers -> the output, or partial sums in
//   the workspace.
// Technique: codes are multiplied unscaled within a group, so a scale costs one fma a group and
//   not one a column.
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
  static constexpr int step_terms = kStepColumns / Product::term_columns;
  static constexpr int block_m = Config::block_m;
  static constexpr int tile_panels = Config::block_n / kLanes;
  static constexpr int unroll = Config::unroll;
  static constexpr int split_k = Config::split_k;
  static constexpr int prefetch_steps = Config::prefetch_bytes / (kLanes * 4);
  static constexpr int kPartsPerThread = 4;  // evens out threads that are slowed by others
  // m blocks that share a pass over the weights: enough to hide reading them, few enough for their
  // rows of x to stay in cache.
  static constexpr int64_t kBlocksAtOnce = ceil_div(128, block_m);

  struct Tile {
    float sums[block_m][tile_panels][kLanes];
  };

  static int64_t workspace_floats(int64_t m, int64_t n, int64_t k, int64_t) {
    const int64_t partial = split_k > 1 ? split_k * m * ceil_div(n, kLanes) * kLanes : 0;
    return Activation<Config>::workspace_floats(m, k) + partial;
  }

  template <class Out>
  static void run(const Activation<Config>& x, const PackedWeight& w, const Out& out,
                  float* workspace, const Workers& workers) {
    const int64_t n_blocks = ceil_div(w.panels(), tile_panels);
    if constexpr (split_k > 1) {
      workers.run(n_blocks * split_k, [&](int64_t part) {
        partial_block(x, w, out.m, part / split_k, part % split_k, workspace);
      });
      reduce(w, out, workspace, workers);
    } else {
      const int64_t shares = workers.threads > 1 ? workers.threads * kPartsPerThread : 1;
      const int64_t parts = least(n_blocks, shares);
      workers.run(parts, [&](int64_t part) {
        const Range range = piece(n_blocks, part, parts);
        for (int64_t first = 0; first * block_m < out.m; first += kBlocksAtOnce) {
          const Range some = {first, least(first + kBlocksAtOnce, ceil_div(out.m, block_m))};
          for (int64_t n_block = range.begin; n_block < range.end; ++n_block) {
            whole_block(x, w, out, some, n_block);
          }
        }
      });
    }
  }

 private:
  template <class Out>
  static void whole_block(const Activation<Config>& x, const PackedWeight& w, const Out& out,
                          Range m_blocks, int64_t n_block) {
    for (int64_t m_block = m_blocks.begin; m_block < m_blocks.end; ++m_block) {
      Tile tile;
      accumulate(x, m_block, w, n_block * tile_panels, {0, w.groups()}, tile);
      static_for<block_m>([&](auto row) {
        static_for<tile_panels>([&](auto p) {
          out.write(m_block * block_m + row, n_block * tile_panels + p, load(tile.sums[row][p]));
        });
      });
    }
  }

  // Writes this share's sums to partial [split_k][m][panels * 16].
  static void partial_block(const Activation<Config>& x, const PackedWeight& w, int64_t m,
                            int64_t n_block, int64_t share, float* partial) {
    const int64_t columns = w.panels() * kLanes;
    for (int64_t m_block = 0; m_block * block_m < m; ++m_block) {
      Tile tile;
      accumulate(x, m_block, w, n_block * tile_panels, piece(w.groups(), share, split_k), tile);
      for (int64_t row = 0; row < least(block_m, m - m_block * block_m); ++row) {
        for (int64_t p = 0; p < least(tile_panels, w.panels() - n_block * tile_panels); ++p) {
          store(partial + (share * m + m_block * block_m + row) * columns +
                    (n_block * tile_panels + p) * kLanes,
                load(tile.sums[row][p]));
        }
      }
    }
  }

  // Adds the shares in their order, so the result does not depend on who was first.
  template <class Out>
  static void reduce(const PackedWeight& w, const Out& out, const float* partial,
                     const Workers& workers) {
    constexpr int64_t kPanelsPerPart = 64;
    const int64_t columns = w.panels() * kLanes;
    workers.run(ceil_div(w.panels(), kPanelsPerPart), [&](int64_t part) {
      const int64_t last = least(w.panels(), (part + 1) * kPanelsPerPart);
      for (int64_t row = 0; row < out.m; ++row) {
        for (int64_t panel = part * kPanelsPerPart; panel < last; ++panel) {
          const float* from = partial + row * columns + panel * kLanes;
          Vec sum = load(from);
          for (int64_t s = 1; s < split_k; ++s) sum = add(sum, load(from + s * out.m * columns));
          out.write(row, panel, sum);
        }
      }
    });
  }

  // tile = x block times the columns of `groups` of tile_panels panels from first_panel on
  static void accumulate(const Activation<Config>& x, int64_t m_block, const PackedWeight& w,
                         int64_t first_panel, Range groups, Tile& tile) {
    const uint32_t* codes[tile_panels];
    const float* scales[tile_panels];
    static_for<tile_panels>([&](auto p) {
      codes[p] = w.panel_codes(first_panel + p) + groups.begin * kGroupSteps * kLanes;
      scales[p] = w.panel_scales(first_panel + p) + groups.begin * kLanes;
      static_for<block_m>([&](auto row) { store(tile.sums[row][p], zero()); });
    });
    const Factor* factors = x.block(m_block, groups.begin * kGroupColumns);
    for (int64_t group = groups.begin; group < groups.end; ++group) {
      const int64_t steps = w.steps_in_group(group);
      // Past its end a panel's stream goes on in the tile after this one, tile_panels away.
      const bool beyond = (group * kGroupSteps + prefetch_steps) >= w.steps();
      const int64_t ahead =
          (prefetch_steps + (beyond ? (tile_panels - 1) * w.steps() : 0)) * kLanes;
      Vec sums[unroll][block_m][tile_panels];
      static_for<unroll * block_m * tile_panels>([&](auto i) { (&sums[0][0][0])[i] = zero(); });
      for (int64_t s = 0; s < steps; ++s) {
        typename Product::Step step[tile_panels];
        static_for<tile_panels>([&](auto p) {
          step[p] = Product::step(load_codes(codes[p]));
          if constexpr (prefetch_steps > 0) prefetch(codes[p] + ahead);
          codes[p] += kLanes;
        });
        multiply_step(factors, step, sums);
        factors += step_terms * block_m;
      }
      add_group(scales, sums, tile);
    }
  }

  static HUMMING_INLINE void multiply_step(const Factor* factors,
                                           const typename Product::Step (&step)[tile_panels],
                                           Vec (&sums)[unroll][block_m][tile_panels]) {
    static_for<step_terms>([&](auto j) {
      static_for<tile_panels>([&](auto p) {
        const auto values = Product::template decode<j>(step[p]);
        static_for<block_m>([&](auto row) {
          Vec& sum = sums[j % unroll][row][p];
          sum = Product::multiply_add(factors[j * block_m + row], values, sum);
        });
      });
    });
  }

  static HUMMING_INLINE void add_group(const float* (&scales)[tile_panels],
                                       const Vec (&sums)[unroll][block_m][tile_panels],
                                       Tile& tile) {
    static_for<tile_panels>([&](auto p) {
      const Vec scale = load(scales[p]);
      scales[p] += kLanes;
      static_for<block_m>([&](auto row) {
        Vec sum = sums[0][row][p];
        static_for<unroll - 1>([&](auto u) { sum = add(sum, sums[u + 1][row][p]); });
        store(tile.sums[row][p], fma(sum, scale, load(tile.sums[row][p])));
      });
    });
  }
};

}  // namespace humming
