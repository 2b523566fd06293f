// x as mainloops in whole numbers read it: quantized by token to int8, rows interleaved in blocks of
//   block_m, with the sums that take the bias of w's bytes off again.
// Run by all threads, by parts of one row.
// Reads x [m][k] of any element type -> writes factors [ceil(m / block_m)][steps * 8][block_m],
//   int32 sums [ceil(m / block_m)][cells][block_m] and fp32 token scales [m] in the workspace.
// Technique: scale = max(max |x| / 127, 2^-126) and code = x / scale, rounded half to even, both in
//   fp32; a row that is not finite has the scale NaN. humming/reference.py does the same.
#pragma once

#include "humming/memory/columns.h"

namespace humming {

constexpr float kLargestCode = 127.0f;
constexpr float kLeastScale = 0x1p-126f;
constexpr float kRounder = 0x1.8p23f;  // added to a small number, it rounds it to a whole one
constexpr uint32_t kInfinityBits = 0x7F800000u;

// int32 that the bias of w's bytes has put into the sums of a block's rows.
template <int block_m>
struct BiasCorrection {
  int32_t of[block_m];
  HUMMING_INLINE Vec corrected(Codes sum, int row) const {
    return to_float(add_each(sum, (uint32_t)-of[row]));
  }
};

template <class Config>
struct QuantizedActivation {
  using Element = typename Config::Activation;
  using Product = typename Config::Product;
  using Factor = typename Product::Factor;
  using Correction = BiasCorrection<Config::block_m>;
  static constexpr int block_m = Config::block_m;
  static constexpr int step_factors = kStepColumns / Product::term_columns;
  // Columns that share an int32 sum: they divide a span, and whatever a mainloop does at a time.
  static constexpr int cell_columns =
      greatest_divisor(128, Config::group_size ? Config::group_size : 128);

  const Factor* rows;
  const int32_t* sums;
  const float* scales;
  int64_t steps;

  const Factor* block(int64_t m_block, int64_t first_column) const {
    return rows + (m_block * steps * step_factors + first_column / Product::term_columns) * block_m;
  }
  Correction correction(int64_t m_block, int64_t begin, int64_t end) const {
    const int64_t cells = cells_of(steps);
    Correction found = {};
    for (int64_t cell = begin / cell_columns; cell < least(cells, ceil_div(end, cell_columns));
         ++cell) {
      const int32_t* from = sums + (m_block * cells + cell) * block_m;
      for (int row = 0; row < block_m; ++row) found.of[row] += Product::bias * from[row];
    }
    return found;
  }
  const float* token_scales() const { return scales; }

  static int64_t workspace_floats(int64_t m, int64_t k) {
    const int64_t steps = ceil_div(k, kStepColumns), rows = ceil_div(m, block_m) * block_m;
    return rows * (steps * step_factors + cells_of(steps) + 1);
  }

  static QuantizedActivation prepare(const Columns<Element>& x, float* workspace,
                                     const Workers& workers) {
    constexpr int64_t kWorthSharing = 1 << 15;
    const int64_t steps = ceil_div(x.k, kStepColumns), cells = cells_of(steps);
    const int64_t rows = ceil_div(x.m, block_m) * block_m;
    Factor* factors = (Factor*)workspace;
    int32_t* sums = (int32_t*)(factors + rows * steps * step_factors);
    float* scales = (float*)(sums + rows * cells);
    const Workers some = {workers.parallel_for, x.m * x.k < kWorthSharing ? 1 : workers.threads};
    some.run(rows, [&](int64_t row) {
      const int64_t m_block = row / block_m, lane = row % block_m;
      scales[row] =
          quantize_row(x, row, steps, factors + m_block * steps * step_factors * block_m + lane,
                       sums + m_block * cells * block_m + lane);
    });
    return {factors, sums, scales, steps};
  }

 private:
  static int64_t cells_of(int64_t steps) { return ceil_div(steps * kStepColumns, cell_columns); }

  // Writes a row's factors and sums, block_m apart, and returns its scale.
  static float quantize_row(const Columns<Element>& x, int64_t row, int64_t steps, Factor* factors,
                            int32_t* sums) {
    const uint32_t largest = largest_magnitude(x, row, steps);
    const bool is_finite = largest < kInfinityBits;
    const float absmax = is_finite ? __builtin_bit_cast(float, largest) : 0.0f;
    const float quotient = absmax / kLargestCode;
    const float scale = quotient < kLeastScale ? kLeastScale : quotient;
    for (int64_t cell = 0; cell < cells_of(steps); ++cell) sums[cell * block_m] = 0;
    for (int64_t step = 0; step < steps; ++step) {
      uint8_t codes[kStepColumns] = {};
      if (is_finite) quantize_step(x, row, step * kStepColumns, scale, codes);
      Factor staged[step_factors];
      Product::factors(codes, staged);
      for (int i = 0; i < step_factors; ++i)
        factors[(step * step_factors + i) * block_m] = staged[i];
      constexpr int columns = least(cell_columns, kStepColumns);
      for (int first = 0; first < kStepColumns; first += columns) {
        int32_t sum = 0;
        for (int i = 0; i < columns; ++i) sum += (int8_t)codes[first + i];
        sums[(step * kStepColumns + first) / cell_columns * block_m] += sum;
      }
    }
    return is_finite ? scale : __builtin_nanf("");
  }

  static HUMMING_INLINE void load_step(const Columns<Element>& x, int64_t row, int64_t first,
                                       float (&values)[kStepColumns]) {
    typename Element::Stored copy[kStepColumns];
    const auto* from = x.step(row, first, copy);
    store(values, Element::load16(from));
    store(values + kLanes, Element::load16(from + kLanes));
  }

  // The fp32 pattern of the row's largest |x|; that of a NaN is above infinity's.
  static uint32_t largest_magnitude(const Columns<Element>& x, int64_t row, int64_t steps) {
    uint32_t most_of[kStepColumns] = {};
    for (int64_t step = 0; step < steps; ++step) {
      float values[kStepColumns];
      load_step(x, row, step * kStepColumns, values);
      for (int i = 0; i < kStepColumns; ++i) {
        const uint32_t magnitude = __builtin_bit_cast(uint32_t, values[i]) & 0x7FFFFFFFu;
        most_of[i] = magnitude > most_of[i] ? magnitude : most_of[i];
      }
    }
    uint32_t largest = 0;
    for (const uint32_t magnitude : most_of) largest = magnitude > largest ? magnitude : largest;
    return largest;
  }

  static HUMMING_INLINE void quantize_step(const Columns<Element>& x, int64_t row, int64_t first,
                                           float scale, uint8_t (&codes)[kStepColumns]) {
    float values[kStepColumns];
    load_step(x, row, first, values);
    for (int i = 0; i < kStepColumns; ++i) {
      // The sum's lowest byte is the rounded quotient's.
      codes[i] = (uint8_t)__builtin_bit_cast(uint32_t, values[i] / scale + kRounder);
    }
  }
};

}  // namespace humming
