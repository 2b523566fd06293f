// Addresses in the layout cpu_n16k8 (see humming/quantize/layout_cpu.py), what shares a scale, and
//   prefetching along it.
// Run by every thread.
// Reads codes uint32 [panels][steps][bits][16], scales and zero points fp32 [panels][groups][16]
//   -> pointers.
// Technique: none.
#pragma once

#include "humming/scheduler/parallel.h"

namespace humming {

constexpr int kLanes = 16;        // rows of w a panel
constexpr int kStepColumns = 32;  // columns of w a step: one 64-byte line for each bit of a code

constexpr int greatest_divisor(int a, int b) { return b ? greatest_divisor(b, a % b) : a; }

template <class Config>
struct PackedWeight {
  using Unit = typename Config::Product::Unit;
  static constexpr int bits = Config::Product::bits;
  static constexpr int unit_words = Unit::lines * kLanes;
  static constexpr int64_t group_size =
      Config::group_size;  // columns that share a scale; 0 = no scales
  static constexpr bool has_scales = group_size > 0;
  // Columns of a unit that share a scale.
  static constexpr int segment_columns =
      has_scales ? greatest_divisor(Unit::columns, Config::group_size) : Unit::columns;
  static constexpr bool whole_units = segment_columns == Unit::columns;
  // What a mainloop sums before it looks at scales again: a group, where it is made of whole units.
  static constexpr int64_t span_columns = !has_scales ? 512 : whole_units ? group_size : 128;
  static constexpr int64_t span_units = span_columns / Unit::columns;

  const uint32_t* codes;
  const float* scales;
  const float* zero_points;
  int64_t n, k;

  int64_t panels() const { return ceil_div(n, kLanes); }
  int64_t steps() const { return ceil_div(k, kStepColumns); }
  int64_t lines() const { return steps() * bits; }
  int64_t units() const { return ceil_div(k, Unit::columns); }
  int64_t spans() const { return ceil_div(k, span_columns); }
  int64_t groups() const { return has_scales ? ceil_div(k, group_size) : 0; }
  // The group of a column; the columns that fill the last step belong to the last one.
  int64_t group_of(int64_t column) const {
    if constexpr (!has_scales) return 0;
    return least(column / most(group_size, 1), groups() - 1);
  }

  // A tile may reach past the last panel: it reads the last one again, and its results are not
  // stored.
  int64_t clamped(int64_t panel) const { return least(panel, panels() - 1); }
  const uint32_t* panel_codes(int64_t panel) const {
    return codes + clamped(panel) * lines() * kLanes;
  }
  const uint32_t* unit_codes(int64_t panel, int64_t unit) const {
    return panel_codes(panel) + unit * unit_words;
  }
  const float* panel_scales(int64_t panel) const {
    return scales + clamped(panel) * groups() * kLanes;
  }
  const float* panel_zero_points(int64_t panel) const {
    return zero_points + clamped(panel) * groups() * kLanes;
  }
  int64_t units_in_span(int64_t span) const {
    return least(span_units, units() - span * span_units);
  }
};

HUMMING_INLINE void prefetch(const void* line) { __builtin_prefetch(line, 0, 3); }

}  // namespace humming
