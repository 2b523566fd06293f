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
#include "humming/memory/activation_for.h"

namespace humming {

template <class Config>
struct Mainloop {
  static_assert(check_legality<Config>(), "legal");
  using Product = typename Config::Product;
  using Factor = typename Product::Factor;
  using Sum = typename Product::Sum;
  using Unit = typename Product::Unit;
  using Zero = typename Product::Zero;
  using X = ActivationFor<Config>;
  using Weight = PackedWeight<Config>;
  static constexpr int unit_terms = Unit::columns / Product::term_columns;
  static constexpr int segment_terms = Weight::segment_columns / Product::term_columns;
  static constexpr int block_m = Config::block_m;
  static constexpr int tile_panels = Config::block_n / kLanes;
  static constexpr int unroll = Config::unroll;
  static constexpr int split_k = Config::split_k;
  static constexpr int prefetch_lines = Config::prefetch_bytes / (kLanes * 4);
  static constexpr int kPartsPerThread = 4;  // evens out threads that are slowed by others
  // m blocks that share a pass over the weights: enough to hide reading them, few enough for their
  // rows of x to stay in cache.
  static constexpr int64_t kBlocksAtOnce = ceil_div(128, block_m);

  struct Tile {
    float sums[block_m][tile_panels][kLanes];
  };
  // What a tile reads of w, on its way along k.
  struct Stream {
    const uint32_t* codes[tile_panels];
    const float* scales[tile_panels];
    const float* zero_points[tile_panels];
  };
  using Sums = Sum[unroll][block_m][tile_panels];

  static int64_t workspace_floats(int64_t m, int64_t n, int64_t k, int64_t) {
    const int64_t partial = split_k > 1 ? split_k * m * ceil_div(n, kLanes) * kLanes : 0;
    return X::workspace_floats(m, k) + partial;
  }

  template <class Out>
  static void run(const X& x, const Weight& w, const Out& out, float* workspace,
                  const Workers& workers) {
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
  static void whole_block(const X& x, const Weight& w, const Out& out, Range m_blocks,
                          int64_t n_block) {
    for (int64_t m_block = m_blocks.begin; m_block < m_blocks.end; ++m_block) {
      Tile tile;
      accumulate(x, m_block, w, n_block * tile_panels, {0, w.spans()}, tile);
      static_for<block_m>([&](auto row) {
        static_for<tile_panels>([&](auto p) {
          out.write(m_block * block_m + row, n_block * tile_panels + p, load(tile.sums[row][p]));
        });
      });
    }
  }

  // Writes this share's sums to partial [split_k][m][panels * 16].
  static void partial_block(const X& x, const Weight& w, int64_t m, int64_t n_block, int64_t share,
                            float* partial) {
    const int64_t columns = w.panels() * kLanes;
    for (int64_t m_block = 0; m_block * block_m < m; ++m_block) {
      Tile tile;
      accumulate(x, m_block, w, n_block * tile_panels, piece(w.spans(), share, split_k), tile);
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
  static void reduce(const Weight& w, const Out& out, const float* partial,
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

  // tile = x block times the columns of `spans` of tile_panels panels from first_panel on
  static void accumulate(const X& x, int64_t m_block, const Weight& w, int64_t first_panel,
                         Range spans, Tile& tile) {
    Stream stream;
    static_for<tile_panels>([&](auto p) {
      const int64_t panel = first_panel + p;
      const int64_t group = Weight::whole_units ? spans.begin * kLanes : 0;
      stream.codes[p] = w.unit_codes(panel, spans.begin * Weight::span_units);
      if constexpr (Weight::has_scales) stream.scales[p] = w.panel_scales(panel) + group;
      if constexpr (Product::Dequant::has_zero_points) {
        stream.zero_points[p] = w.panel_zero_points(panel) + group;
      }
      static_for<block_m>([&](auto row) { store(tile.sums[row][p], zero()); });
    });
    const Factor* factors = x.block(m_block, spans.begin * Weight::span_columns);
    for (int64_t span = spans.begin; span < spans.end; ++span) {
      // Past its end a panel's stream goes on in the tile after this one, tile_panels away.
      const bool beyond = span * Weight::span_units * Unit::lines + prefetch_lines >= w.lines();
      const int64_t ahead =
          (prefetch_lines + (beyond ? (tile_panels - 1) * w.lines() : 0)) * kLanes;
      if constexpr (Weight::whole_units) {
        add_span(x, m_block, w, span, ahead, stream, factors, tile);
      } else {
        add_segments(w, span, ahead, stream, factors, tile);
      }
    }
  }

  // Adds a span whose columns share a scale, or have none.
  static HUMMING_INLINE void add_span(const X& x, int64_t m_block, const Weight& w, int64_t span,
                                      int64_t ahead, Stream& stream, const Factor*& factors,
                                      Tile& tile) {
    const int64_t units = w.units_in_span(span);
    Sums sums;
    Zero zeros[tile_panels];
    clear(sums);
    load_zeros(stream, 0, zeros);
    for (int64_t u = 0; u < units; ++u) {
      Unit unit[tile_panels];
      load_units(stream, ahead, unit);
      multiply<0, unit_terms>(factors, unit, zeros, sums);
      factors += unit_terms * block_m;
    }
    const int64_t column = span * Weight::span_columns;
    add_sums(stream, 0, x.correction(m_block, column, column + Weight::span_columns), sums, tile);
    static_for<tile_panels>([&](auto p) {
      if constexpr (Weight::has_scales) stream.scales[p] += kLanes;
      if constexpr (Product::Dequant::has_zero_points) stream.zero_points[p] += kLanes;
    });
  }

  // Adds a span of units whose segments have scales of their own.
  static HUMMING_INLINE void add_segments(const Weight& w, int64_t span, int64_t ahead,
                                          Stream& stream, const Factor*& factors, Tile& tile) {
    const int64_t units = w.units_in_span(span);
    for (int64_t u = 0; u < units; ++u) {
      Unit unit[tile_panels];
      load_units(stream, ahead, unit);
      const int64_t column = span * Weight::span_columns + u * Unit::columns;
      static_for<unit_terms / segment_terms>([&](auto s) {
        const int64_t at = w.group_of(column + s * Weight::segment_columns) * kLanes;
        Sums sums;
        Zero zeros[tile_panels];
        clear(sums);
        load_zeros(stream, at, zeros);
        multiply<s * segment_terms, segment_terms>(factors, unit, zeros, sums);
        add_sums(stream, at, NoCorrection{}, sums, tile);
      });
      factors += unit_terms * block_m;
    }
  }

  static HUMMING_INLINE void clear(Sums& sums) {
    static_for<unroll * block_m * tile_panels>(
        [&](auto i) { (&sums[0][0][0])[i] = Product::nothing(); });
  }

  static HUMMING_INLINE void load_zeros(const Stream& stream, int64_t at,
                                        Zero (&zeros)[tile_panels]) {
    if constexpr (Product::Dequant::has_zero_points) {
      static_for<tile_panels>(
          [&](auto p) { zeros[p] = Product::load_zero(stream.zero_points[p] + at); });
    }
  }

  static HUMMING_INLINE void load_units(Stream& stream, int64_t ahead, Unit (&unit)[tile_panels]) {
    static_for<tile_panels>([&](auto p) {
      unit[p] = Unit::load(stream.codes[p]);
      if constexpr (prefetch_lines > 0) {
        static_for<Unit::lines>(
            [&](auto line) { prefetch(stream.codes[p] + ahead + line * kLanes); });
      }
      stream.codes[p] += Unit::lines * kLanes;
    });
  }

  // sums += `terms` terms of a unit, from `first` on
  template <int first, int terms>
  static HUMMING_INLINE void multiply(const Factor* factors, const Unit (&unit)[tile_panels],
                                      const Zero (&zeros)[tile_panels], Sums& sums) {
    static_for<terms>([&](auto i) {
      constexpr int term = first + i;
      static_for<tile_panels>([&](auto p) {
        const auto values = Product::template decode<term>(unit[p], zeros[p]);
        static_for<block_m>([&](auto row) {
          Sum& sum = sums[term % unroll][row][p];
          sum = Product::multiply_add(factors[term * block_m + row], values, sum);
        });
      });
    });
  }

  // tile += sums, scaled by the scales `at` floats from the stream's
  template <class Correction>
  static HUMMING_INLINE void add_sums(const Stream& stream, int64_t at,
                                      const Correction& correction, const Sums& sums, Tile& tile) {
    static_for<tile_panels>([&](auto p) {
      static_for<block_m>([&](auto row) {
        Sum sum = sums[0][row][p];
        static_for<unroll - 1>([&](auto u) { sum = Product::add_sums(sum, sums[u + 1][row][p]); });
        const Vec exact = correction.corrected(sum, row);
        float* to = tile.sums[row][p];
        if constexpr (Weight::has_scales) {
          store(to, fma(exact, load(stream.scales[p] + at), load(to)));
        } else {
          store(to, add(exact, load(to)));
        }
      });
    });
  }
};

}  // namespace humming
