// The rules of humming/spec/legality/wgmma.py that a compiler can check, by the same names.
// Run by nobody; checked when the config is compiled.
// Reads -> writes: nothing.
// Source: own.
#pragma once

namespace humming {

template <class Config>
struct WgmmaRules {
  static_assert(16 <= Config::block_m && Config::block_m <= 256 &&
                    Config::block_m % (Config::block_m <= 128 ? 16 : 32) == 0,
                "wgmma_block_m");
  static_assert(1 <= Config::warpgroups && Config::warpgroups <= 4, "wgmma_warpgroups_range");
  static_assert(1 <= Config::tiles_n && Config::tiles_n <= 4, "wgmma_tiles_n_range");
  static_assert(Config::cluster_n == 1 || Config::cluster_n == 2 || Config::cluster_n == 4,
                "wgmma_cluster_n");
  static_assert(Config::block_m % (8 * Config::cluster_n) == 0, "wgmma_cluster_shares_x");
  static_assert((Config::split_k == 1 || Config::split_k == 2 || Config::split_k == 4) &&
                    (Config::split_k == 1 || (Config::cluster_n == 1 && Config::stream_k == 0)),
                "wgmma_split_k");
  static_assert(1 <= Config::num_stores && Config::num_stores <= 16, "wgmma_num_stores_range");
  static_assert(3 <= Config::num_stages && Config::num_stages <= 32, "wgmma_num_stages_range");
  static_assert(1 <= Config::raster_group_m && Config::raster_group_m <= 64,
                "wgmma_raster_group_m_range");
  static_assert(0 <= Config::stream_k && Config::stream_k <= 1, "wgmma_stream_k_range");
  static_assert(0 <= Config::dependent_launch && Config::dependent_launch <= 1,
                "wgmma_dependent_launch_range");
  static_assert(1 <= Config::blocks_per_sm && Config::blocks_per_sm <= 4,
                "wgmma_blocks_per_sm_range");
#if defined(__CUDA_ARCH__)
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(Config::block_m == 0, "wgmma_hopper_device");
#endif
#endif
};

}  // namespace humming
