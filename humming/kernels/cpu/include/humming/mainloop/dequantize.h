// The loop of the family blas: panels of w become columns of an fp32 matrix. It only orders named
//   steps.
// Run by all threads; a part is a panel's share of k.
// Reads packed weights -> matrix fp32 [k][row_stride], where column j is row first_panel * 16 + j
//   of w, scaled, and rows are in the order of x's columns.
// Technique: none.
#pragma once

#include "humming/epilogue/matrix.h"
#include "humming/memory/packed_weight.h"

namespace humming {

struct DequantizeArgs {
  const uint32_t* codes;  // layout cpu_n16k8, as are the three below
  const float* scales;
  const float* zero_points;
  const float* row_scales;
  const int32_t* permutation;
  float* matrix;
  ParallelFor parallel_for;
  int64_t n, k, first_panel, panels, row_stride;
  int64_t threads;
};

template <class Config>
void dequantize(const DequantizeArgs& a) {
  using Weight = PackedWeight<Config>;
  using Dequant = typename Config::Dequant;
  using Unit = typename Dequant::Unit;
  constexpr int64_t kChunk = 512;  // columns of w a part
  const Weight w = {a.codes, a.scales, a.zero_points, a.n, a.k};
  const Matrix matrix = {a.matrix, Config::is_permuted ? a.permutation : nullptr, a.row_stride,
                         a.k};
  const int64_t chunks = ceil_div(a.k, kChunk);
  const Workers workers = {a.parallel_for, a.threads};
  workers.run(a.panels * chunks, [&](int64_t part) {
    const int64_t panel = a.first_panel + part / chunks, first = part % chunks * kChunk;
    const Vec row_scale = a.row_scales ? load(a.row_scales + panel * kLanes) : broadcast(1.0f);
    for (int64_t k = first; k < least(a.k, first + kChunk); k += Unit::columns) {
      const auto unit = Unit::load(w.unit_codes(panel, k / Unit::columns));
      static_for<Unit::columns / Weight::segment_columns>([&](auto s) {
        constexpr int segment = s * Weight::segment_columns;
        const int64_t at = w.group_of(k + segment) * kLanes;
        typename Dequant::Zero zero_point = {};
        Vec scale = row_scale;
        if constexpr (Dequant::has_zero_points) {
          zero_point = Dequant::load_zero(w.panel_zero_points(panel) + at);
        }
        if constexpr (Weight::has_scales) scale = mul(scale, load(w.panel_scales(panel) + at));
        static_for<Weight::segment_columns>([&](auto i) {
          const Vec value = Dequant::template value<segment + i>(unit, zero_point);
          matrix.write(k + segment + i, panel - a.first_panel, mul(value, scale));
        });
      });
    }
  });
}

}  // namespace humming
