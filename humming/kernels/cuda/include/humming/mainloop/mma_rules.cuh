// The rules of humming/spec/legality/mma.py that a compiler can check, by the same names.
// Run by nobody; checked when the config is compiled.
// Reads -> writes: nothing.
// Source: own.
#pragma once

namespace humming {

__host__ __device__ constexpr bool mma_divides(int a, int b) {
  return a > 0 && b > 0 && b % a == 0;
}

template <class Config>
struct MmaRules {
  static constexpr int warps = Config::warps_m * Config::warps_n * Config::warps_k;
  static constexpr int columns = Config::block_m / 8 / Config::warps_m;
  static constexpr int fragments = Config::block_n / 16 / Config::warps_n * columns;
  static constexpr int sums = Config::block_m * Config::block_n * Config::warps_k / (32 * warps);

  static_assert(1 <= warps && warps <= 16, "mma_warps_range");
  static_assert(mma_divides(16 * Config::warps_n, Config::block_n) && Config::block_n <= 256,
                "mma_block_n_multiple");
  static_assert(mma_divides(16 * Config::warps_m, Config::block_m) && Config::block_m <= 256,
                "mma_block_m_multiple");
  static_assert(mma_divides(64 * Config::warps_k, Config::block_k) && Config::block_k <= 256,
                "mma_block_k_multiple");
  static_assert(Config::group_size == 0 || mma_divides(Config::group_size, Config::block_k) ||
                    mma_divides(Config::block_k, Config::group_size),
                "mma_groups_whole");
  static_assert(columns <= 8 || columns % 4 == 0, "mma_columns_even");
  static_assert(2 <= Config::num_stages && Config::num_stages <= 8, "mma_num_stages_range");
  static_assert(1 <= Config::split_k && Config::split_k <= 8, "mma_split_k_range");
  static_assert(0 <= Config::cluster && Config::cluster <= 1, "mma_cluster_range");
  static_assert(1 <= Config::raster_group_m && Config::raster_group_m <= 1 << 16,
                "mma_raster_group_m_range");
  static_assert(1 <= Config::blocks_per_sm && Config::blocks_per_sm <= 4,
                "mma_blocks_per_sm_range");
  static_assert(0 <= Config::dependent_launch && Config::dependent_launch <= 1,
                "mma_dependent_launch_range");
  static_assert(Config::split_k > 1 || Config::cluster == 0, "mma_cluster_split");
  static_assert(0 <= Config::stream_k && Config::stream_k <= 1, "mma_stream_k_range");
  static_assert(Config::stream_k == 0 ||
                    (Config::split_k == 1 && mma_divides(Config::warps_k, fragments)),
                "mma_stream_k_knobs");
  static_assert(Config::half_sums == 0 || Config::Activation::exponent_bits == 5, "mma_half_sums");
  static_assert(sums + (Config::half_sums ? sums / 2 : 0) <=
                    (warps * Config::blocks_per_sm <= 8 ? 144 : 80),
                "mma_accumulators_fit");
#if defined(__CUDA_ARCH__)
  static_assert(__CUDA_ARCH__ >= Config::Activation::least_arch, "mma_bf16_device");
  static_assert(Config::cluster == 0 || __CUDA_ARCH__ >= 900, "mma_cluster_device");
  static_assert(Config::dependent_launch == 0 || __CUDA_ARCH__ >= 900, "mma_dependent_device");
#endif
};

}  // namespace humming
