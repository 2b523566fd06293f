// Addresses in the layout cpu_n16k8 (see humming/quantize/layout.py), and prefetching along it.
// Run by every thread.
// Reads codes uint32 [panels][k / 8][16], scales fp32 [panels][groups][16] -> pointers.
// Technique: none.
#pragma once

#include "humming/scheduler/parallel.h"

namespace humming {

constexpr int kLanes = 16;          // rows of w a panel
constexpr int kStepColumns = 8;     // columns of w a step (one 64-byte line)
constexpr int kGroupColumns = 128;  // columns that share a scale
constexpr int kGroupSteps = kGroupColumns / kStepColumns;

struct PackedWeight {
  const uint32_t* codes;
  const float* scales;
  int64_t n, k;

  int64_t panels() const { return ceil_div(n, kLanes); }
  int64_t groups() const { return ceil_div(k, kGroupColumns); }
  int64_t steps() const { return k / kStepColumns; }

  // A tile may reach past the last panel: it reads the last one again, and its results are not
  // stored.
  int64_t clamped(int64_t panel) const { return least(panel, panels() - 1); }
  const uint32_t* panel_codes(int64_t panel) const {
    return codes + clamped(panel) * steps() * kLanes;
  }
  const float* panel_scales(int64_t panel) const {
    return scales + clamped(panel) * groups() * kLanes;
  }
  int64_t steps_in_group(int64_t group) const {
    return least(kGroupSteps, steps() - group * kGroupSteps);
  }
};

HUMMING_INLINE void prefetch(const void* line) { __builtin_prefetch(line, 0, 3); }

}  // namespace humming
