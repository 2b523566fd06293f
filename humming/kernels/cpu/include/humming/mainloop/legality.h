// Rules of humming/spec/legality.py that a compiler can check, by the same names.
// Run by the compiler.
// Reads Config's constants.
// Technique: none.
#pragma once

#include "humming/memory/packed_weight.h"

namespace humming {

template <class Config>
constexpr bool check_legality() {
  using C = Config;
  constexpr int divisor = greatest_divisor(8, C::group_size);
  static_assert(!C::Product::quantizes_x ||
                    (C::Product::takes_weight && divisor == 8 && C::group_size <= (1 << 16)),
                "cpu_int8_weights");
  static_assert(!C::Product::flushes_denormals || (C::Product::takes_weight && divisor == 8),
                "cpu_bf16_weights");
  static_assert(C::Product::template takes<typename C::Activation>, "cpu_bf16_activations");
  static_assert(C::block_m >= 1 && C::block_m <= 16, "cpu_block_m_range");
  static_assert(C::block_n % 16 == 0 && C::block_n >= 16 && C::block_n <= 128,
                "cpu_block_n_multiple");
  static_assert(C::block_k % 128 == 0 && C::block_k >= 128 && C::block_k <= 1024,
                "cpu_block_k_multiple");
  static_assert(C::unroll == 1 || C::unroll == 2 || C::unroll == 4, "cpu_unroll");
  static_assert(C::prefetch_bytes % 64 == 0 && C::prefetch_bytes >= 0 && C::prefetch_bytes <= 8192,
                "cpu_prefetch_range");
  static_assert(C::block_m * (C::block_n / 16) * C::unroll <= kMaxAccumulators,
                "cpu_accumulators_fit");
  return true;
}

}  // namespace humming
