// The rules of humming/spec/legality/mma_bytes.py that a compiler can check, by the same names.
// Run by nobody; checked when the config is compiled.
// Reads -> writes: nothing.
// Source: own.
#pragma once
#include "humming/mainloop/mma_rules.cuh"
#include "humming/memory/mma_bytes_plan.cuh"

namespace humming {

template <class Config>
struct MmaBytesRules : MmaRules<Config> {
  using Plan = MmaPlan<Config>;
  static constexpr int sets = Plan::promoted > Plan::step_k ? 2 : 1;
  static constexpr int sums = Config::block_m * Config::block_n / (32 * Plan::way_threads / 32);

  static_assert(mma_divides(Plan::line_k* Config::warps_k, Config::block_k),
                "mma_bytes_block_k_multiple");
  static constexpr int scales = !Plan::x_grouped ? 0 : 4 * Plan::columns;
  static_assert(sums * sets + scales <= (Plan::threads * Config::blocks_per_sm <= 256 ? 144 : 80),
                "mma_bytes_accumulators_fit");
#if defined(__CUDA_ARCH__)
  static_assert(__CUDA_ARCH__ >= Config::Products::least_arch, "mma_bytes_device");
#if HUMMING_HAS_FP4
  static constexpr bool has_fp4 = true;
#else
  static constexpr bool has_fp4 = false;
#endif
  static_assert(Config::Products::x_bits == 8 ||
                    (Plan::block_scaled ? has_fp4 : __CUDA_ARCH__ < 900),
                "mma_narrow_device");
#endif
};

}  // namespace humming
