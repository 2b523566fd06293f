// The rows of x that a product which flushes denormals gets wrong: they are computed again in fp32.
// Run by all threads; a part is a range of panels.
// Reads bf16 x [m][k] as the caller gave it, packed weights -> the output.
// Technique: bf16 numbers of at least 2^-119 are multiples of 2^-126, and so are their products
//   with whole numbers and all sums of these: none is denormal. Where the values of w are
//   multiples of 2^-f only, x must be 2^f times as large. Rows with smaller numbers are rare, and
//   may be slow.
#pragma once

#include "humming/epilogue/output.h"
#include "humming/memory/columns.h"

namespace humming {

constexpr uint16_t kMagnitudeBits = 0x7FFF;
constexpr int kLeastExponent = 8;  // 2^-119: exponent 8 - 127
constexpr int kBf16MantissaBits = 7;
constexpr int kChains = 4;  // independent sums, as an fma takes four cycles

// Whether a row of bf16 x has a number, other than zero, of less than `least`.
inline bool has_tiny(const uint16_t* x, int64_t k, uint16_t least) {
  int found = 0;
  for (int64_t i = 0; i < k; ++i) {
    const uint16_t below_magnitude =
        (uint16_t)((x[i] & kMagnitudeBits) - 1);  // zero comes out last
    found |= below_magnitude < least - 1;
  }
  return found;
}

// The sums of 16 rows of w, panel `panel`, with one row of x.
template <class Element, class Config>
Vec row_times_panel(const Columns<Element>& x, int64_t row, const PackedWeight<Config>& w,
                    int64_t panel) {
  using Dequant = typename Config::Product::Dequant;
  using Unit = typename Dequant::Unit;
  using Weight = PackedWeight<Config>;
  Vec total = zero();
  for (int64_t step = 0; step < w.steps(); ++step) {
    typename Element::Stored copy[kStepColumns];
    float factors[kStepColumns];
    const auto* from = x.step(row, step * kStepColumns, copy);
    store(factors, Element::load16(from));
    store(factors + kLanes, Element::load16(from + kLanes));
    for (int first = 0; first < kStepColumns; first += Unit::columns) {
      const int64_t column = step * kStepColumns + first;
      const auto unit = Unit::load(w.unit_codes(panel, column / Unit::columns));
      static_for<Unit::columns / Weight::segment_columns>([&](auto s) {
        constexpr int segment = s * Weight::segment_columns;
        const int64_t at = w.group_of(column + segment) * kLanes;
        typename Dequant::Zero zero_point = {};
        if constexpr (Dequant::has_zero_points) {
          zero_point = Dequant::load_zero(w.panel_zero_points(panel) + at);
        }
        Vec sums[kChains] = {zero(), zero(), zero(), zero()};
        static_for<Weight::segment_columns>([&](auto i) {
          Vec& sum = sums[i % kChains];
          sum = fma(broadcast(factors[first + segment + i]),
                    Dequant::template value<segment + i>(unit, zero_point), sum);
        });
        const Vec sum = add(add(sums[0], sums[1]), add(sums[2], sums[3]));
        if constexpr (Weight::has_scales) {
          total = fma(sum, load(w.panel_scales(panel) + at), total);
        } else {
          total = add(total, sum);
        }
      });
    }
  }
  return total;
}

template <class Element, class Config, class Out>
void redo_tiny_rows(const Columns<Element>& x, const PackedWeight<Config>& w, const Out& out,
                    const Workers& workers) {
  constexpr uint16_t least_safe = (kLeastExponent + Config::Product::Dequant::Type::fraction_bits)
                                  << kBf16MantissaBits;
  for (int64_t row = 0; row < out.m; ++row) {
    if (!has_tiny(x.x + row * x.ldx, w.k, least_safe)) continue;
    const int64_t parts = least(w.panels(), workers.threads);
    workers.run(parts, [&](int64_t part) {
      const Range panels = piece(w.panels(), part, parts);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        out.write(row, panel, row_times_panel(x, row, w, panel));
      }
    });
  }
}

}  // namespace humming
