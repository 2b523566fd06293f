// The rows of x that a product which flushes denormals gets wrong: they are computed again in fp32.
// Run by all threads; a part is a range of panels.
// Reads bf16 x [m][k] as the caller gave it, packed weights -> the output.
// Technique: bf16 numbers of at least 2^-119 are multiples of 2^-126, and so are their products
//   with codes and all sums of these: none is denormal. Rows with smaller numbers are rare, and may
//   be slow.
#pragma once

#include "humming/epilogue/output.h"

namespace humming {

constexpr uint16_t kMagnitudeBits = 0x7FFF;
constexpr uint16_t kLeastSafe = 8 << 7;  // 2^-119: exponent 8 - 127
constexpr int kChains = 4;               // independent sums, as an fma takes four cycles

// Whether a row of bf16 x has a number, other than zero, of less than 2^-119.
inline bool has_tiny(const uint16_t* x, int64_t k) {
  int found = 0;
  for (int64_t i = 0; i < k; ++i) {
    const uint16_t below_magnitude =
        (uint16_t)((x[i] & kMagnitudeBits) - 1);  // zero comes out last
    found |= below_magnitude < kLeastSafe - 1;
  }
  return found;
}

// The sums of 16 rows of w, panel `panel`, with one row of x.
template <class Element>
Vec row_times_panel(const uint16_t* x, const PackedWeight& w, int64_t panel) {
  Vec total = zero();
  for (int64_t group = 0; group < w.groups(); ++group) {
    const uint32_t* codes = w.panel_codes(panel) + group * kGroupSteps * kLanes;
    const int64_t steps = w.steps_in_group(group);
    float factors[kGroupColumns];
    for (int64_t column = 0; column < steps * kStepColumns; column += kLanes) {
      store(factors + column, Element::load16(x + group * kGroupColumns + column));
    }
    Vec sums[kChains] = {zero(), zero(), zero(), zero()};
    for (int64_t s = 0; s < steps; ++s) {
      const Int4Step step = int4_step(load_codes(codes + s * kLanes));
      static_for<kStepColumns>([&](auto column) {
        Vec& sum = sums[column % kChains];
        sum = fma(broadcast(factors[s * kStepColumns + column]), decode<column>(step), sum);
      });
    }
    const Vec sum = add(add(sums[0], sums[1]), add(sums[2], sums[3]));
    total = fma(sum, load(w.panel_scales(panel) + group * kLanes), total);
  }
  return total;
}

template <class Element, class Out>
void redo_tiny_rows(const uint16_t* x, int64_t ldx, const PackedWeight& w, const Out& out,
                    const Workers& workers) {
  for (int64_t row = 0; row < out.m; ++row) {
    if (!has_tiny(x + row * ldx, w.k)) continue;
    const int64_t parts = least(w.panels(), workers.threads);
    workers.run(parts, [&](int64_t part) {
      const Range panels = piece(w.panels(), part, parts);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        out.write(row, panel, row_times_panel<Element>(x + row * ldx, w, panel));
      }
    });
  }
}

}  // namespace humming
