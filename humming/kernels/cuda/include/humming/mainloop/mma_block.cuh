// A whole block of the mma family, step by step: fill the ring, multiply stage by stage, add up.
// Run by all threads of a block.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: multi-stage pipelines as in CUTLASS 2: one barrier a stage, before its last piece, whose
//   fragments are in registers already, so that the slot can be filled again at once.
#pragma once
#include "humming/epilogue/mma.cuh"
#include "humming/mainloop/mma.cuh"

namespace humming {

// Weights do not depend on the kernel before, so their stream starts ahead of the wait.
template <class Config>
__device__ __forceinline__ void block_fill_ahead(MmaOperands<Config>& operands, int stages) {
#pragma unroll
  for (int s = 0; s < Config::num_stages; ++s) {
    operands.put_weights(s < stages, operands.stage(s));
    operands.next_weights();
  }
#if __CUDA_ARCH__ >= 900
  ptx::grid_dependency_wait();
  ptx::grid_dependency_release();
#endif
#pragma unroll
  for (int s = 0; s < Config::num_stages; ++s) {
    operands.put_x(s < stages, operands.stage(s));
    operands.next_x();
    operands.commit();
  }
}

template <class Config>
__device__ __forceinline__ void block_fill(MmaOperands<Config>& operands, int stages) {
#pragma unroll
  for (int s = 0; s < Config::num_stages; ++s) {
    operands.fetch(s < stages);
    operands.put_weights(s < stages, operands.stage(s));
    operands.next_weights();
    operands.put_x(s < stages, operands.stage(s));
    operands.next_x();
    operands.commit();
  }
}

// A slot is free once all warps have met after its last fragments were read; it is filled again in
// parts, between the products of the next stage.
template <class Config>
__device__ __forceinline__ void block_multiply(MmaSums<Config>& sums, MmaOperands<Config>& operands,
                                               int stages) {
  using Fragments = MmaFragments<Config>;
  constexpr int pieces = Fragments::steps * Fragments::pieces, parts = pieces - 1;
  constexpr int held_for = MmaOperands<Config>::asynchronous ? 0 : parts - 1;
  Fragments held;
  operands.template wait<Config::num_stages - 1>();
  __syncthreads();
  operands.back(1);
  int slot = 0;
  u32 base = operands.stage(0), freed = base;
  held.read_weights(operands, base, 0);
  held.read_x(operands, base, 0, 0, 0);
  held.scale_weights(0, 0);
#pragma unroll 1
  for (int number = 0; number < stages; ++number) {
    const bool more = number > 0 && number - 1 + Config::num_stages < stages;
    operands.fetch(more);
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      const int next = (p + 1) % pieces;
      const int next_step = next / Fragments::pieces, next_piece = next % Fragments::pieces;
      if (next == 0) {
        operands.template wait<Config::num_stages - 2>();
        __syncthreads();
        freed = base;
        slot = slot + 1 == Config::num_stages ? 0 : slot + 1;
        base = operands.stage(slot);
      }
      if (next_piece == 0) held.read_weights(operands, base, next_step);
      held.read_x(operands, base, next_step, next_piece, (p + 1) % 2);
      if (p == held_for) operands.put_weights(more, freed);
      if (p < parts && held_for == 0) operands.put_x(more, freed, p, parts);
      if (p == parts - 1) {
        if (held_for != 0) operands.put_x(more, freed);
        operands.next_weights();
        operands.next_x();
        operands.commit();
      }
      if (next_piece == 0) held.scale_weights(next_step, next_step % 2);
      held.multiply(sums, p / Fragments::pieces, p % Fragments::pieces, p % 2);
    }
  }
}

// The sums of warps that share k, added up in the tile.
template <class Config>
__device__ __forceinline__ void block_add_ways(const MmaTile<Config>& tile, MmaSums<Config>& sums,
                                               int warp_m, int warp_n, int way, int lane) {
  __syncthreads();
  if constexpr (MmaPlan<Config>::exchanged) {
    const int place = threadIdx.x % MmaPlan<Config>::way_threads;
    tile.warp_send(sums, way, place);
    __syncthreads();
    tile.warp_add(sums, way, place);
    __syncthreads();
    tile.warp_put(sums, way, warp_m, warp_n, lane);
  } else {
    if (way == 0) tile.warp_put(sums, way, warp_m, warp_n, lane);
#pragma unroll 1
    for (int next = 1; next < Config::warps_k; ++next) {
      __syncthreads();
      if (next == way) tile.warp_put_over(sums, warp_m, warp_n, lane);
    }
  }
}

template <class Config>
__device__ __forceinline__ void block_mma(u32 shared, const MmaCall& call) {
  shared = MmaTile<Config>::aligned(shared);
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int warp_m = warp % Config::warps_m, warp_n = warp / Config::warps_m % Config::warps_n,
            warp_k = warp / (Config::warps_m * Config::warps_n);
  const MmaShare share = mma_share<Config>(call);
  MmaOperands<Config> operands(call, share, shared, warp_m, warp_n, warp_k, lane);

  if constexpr (Config::dependent_launch != 0) {
    block_fill_ahead(operands, share.stages);
  } else {
    block_fill(operands, share.stages);
  }
  MmaSums<Config> sums = {};
  block_multiply<Config>(sums, operands, share.stages);

  const MmaTile<Config> tile = {shared};
  block_add_ways(tile, sums, warp_m, warp_n, warp_k, lane);
  block_finish<Config>(tile, call, share);
}

}  // namespace humming
