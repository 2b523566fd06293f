// The rules of humming/spec/legality/wgmma8.py that a compiler can check, by the same names.
// Run by nobody; checked when the config is compiled.
// Reads -> writes: nothing.
// Source: own.
#pragma once

namespace humming {

template <class Config>
struct Wgmma8Rules {
  static_assert(16 <= Config::block_m && Config::block_m <= 256 &&
                    Config::block_m % (Config::block_m <= 128 ? 16 : 32) == 0,
                "wgmma8_block_m");
  static_assert(1 <= Config::warpgroups && Config::warpgroups <= 4, "wgmma8_warpgroups_range");
  static_assert(1 <= Config::tiles_n && Config::tiles_n <= 4, "wgmma8_tiles_n_range");
  static_assert(Config::warpgroups * Config::tiles_n <= 4 * Config::k_warpgroups,
                "wgmma8_rows_in_a_copy");
  static_assert(Config::cluster_n == 1 || Config::cluster_n == 2 || Config::cluster_n == 4,
                "wgmma8_cluster_n");
  static_assert(Config::block_m % (8 * Config::cluster_n) == 0, "wgmma8_cluster_shares_x");
  static_assert(Config::split_k == 1 || ((Config::split_k == 2 || Config::split_k == 4) &&
                                         Config::cluster_n == 1 && Config::stream_k == 0),
                "wgmma8_split_k");
  static_assert(2 <= Config::num_stages && Config::num_stages <= 32, "wgmma8_num_stages_range");
  static_assert(Config::k_warpgroups == 1 || Config::k_warpgroups == 2 || Config::k_warpgroups == 4,
                "wgmma8_k_warpgroups");
  static_assert(Config::warpgroups % Config::k_warpgroups == 0, "wgmma8_takes_turns");
  static_assert(Config::k_warpgroups < Config::num_stages &&
                    Config::num_stages % Config::k_warpgroups == 0,
                "wgmma8_stages_of_turns");
  static_assert(1 <= Config::raster_group_m && Config::raster_group_m <= 64,
                "wgmma8_raster_group_m_range");
  static_assert(0 <= Config::stream_k && Config::stream_k <= 1, "wgmma8_stream_k_range");
  static_assert(0 <= Config::promote && Config::promote <= 1, "wgmma8_promote_range");
  static_assert(0 <= Config::dependent_launch && Config::dependent_launch <= 1,
                "wgmma8_dependent_launch_range");
  static_assert(1 <= Config::blocks_per_sm && Config::blocks_per_sm <= 4,
                "wgmma8_blocks_per_sm_range");
#if defined(__CUDA_ARCH__)
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(Config::block_m == 0, "wgmma8_hopper_device");
#endif
#endif
};

}  // namespace humming
