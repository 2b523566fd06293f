// The rules of humming/spec/legality/skinny.py that a compiler can check, by the same names.
// Run by nobody; checked when the config is compiled.
// Reads -> writes: nothing.
// Source: own.
#pragma once

namespace humming {

template <class Config>
struct SkinnyRules {
  static_assert(1 <= Config::block_m && Config::block_m <= 32, "skinny_block_m_range");
  static_assert(1 <= Config::tiles_n && Config::tiles_n <= 16, "skinny_tiles_n_range");
  static_assert(1 <= Config::warps && Config::warps <= 32, "skinny_warps_range");
  static_assert(1 <= Config::split_k && Config::split_k <= 8, "skinny_split_k_range");
  static_assert(0 <= Config::num_stages && Config::num_stages <= 32, "skinny_num_stages_range");
  static_assert(1 <= Config::x_stages && Config::x_stages <= 4, "skinny_x_stages_range");
  static_assert(1 <= Config::blocks_per_sm && Config::blocks_per_sm <= 16,
                "skinny_blocks_per_sm_range");
  static_assert(0 <= Config::dependent_launch && Config::dependent_launch <= 1,
                "skinny_dependent_launch_range");
  static_assert(0 <= Config::warpgroup && Config::warpgroup <= 1, "skinny_warpgroup_range");
  static_assert(0 <= Config::exact_codes && Config::exact_codes <= 1, "skinny_exact_codes_range");
  static_assert(Config::stage_tiles >= 1 && Config::tiles_n % Config::stage_tiles == 0 &&
                    (Config::num_stages > 0 || Config::stage_tiles == 1),
                "skinny_stage_tiles");
  static_assert(Config::warpgroup == 0 || (Config::warps % 4 == 0 && Config::num_stages >= 1 &&
                                           Config::x_stages >= 2 && Config::exact_codes == 0),
                "skinny_warpgroup_knobs");
#if defined(__CUDA_ARCH__)
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(Config::warpgroup == 0, "skinny_warpgroup_device");
#endif
  static_assert(__CUDA_ARCH__ >= Config::Activation::least_arch, "skinny_bf16_device");
  static_assert(Config::num_stages == 0 || __CUDA_ARCH__ >= 800, "skinny_ring_device");
  static_assert(Config::split_k == 1 || __CUDA_ARCH__ >= 900, "skinny_cluster_device");
  static_assert(Config::dependent_launch == 0 || __CUDA_ARCH__ >= 900, "skinny_dependent_device");
#endif
};

}  // namespace humming
