// A whole block of the mma family, step by step: fill the ring, multiply stage by stage, add up.
// Run by all threads of a block.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: multi-stage pipelines as in CUTLASS 2: one barrier a stage, before its last piece, whose
//   fragments are in registers already, so that the slot can be filled again at once.
#pragma once
#include "humming/epilogue/mma.cuh"
#include "humming/mainloop/mma.cuh"

namespace humming {

// What a thread's warp has of the block's work.
struct MmaPlace {
  int warp_m, warp_n, way, thread;  // way: of the warps that share k

  // What follows from it is made again, as registers are short, instead of being kept over tiles.
  __device__ __forceinline__ void forget() {
    ptx::settle(warp_m), ptx::settle(warp_n), ptx::settle(way), ptx::settle(thread);
  }
};

template <class Config>
__device__ __forceinline__ MmaPlace mma_place() {
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
  return {warp % Config::warps_m, warp / Config::warps_m % Config::warps_n,
          warp / (Config::warps_m * Config::warps_n), static_cast<int>(threadIdx.x)};
}

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
  held.begin();
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
  held.finish(sums);
}

template <class Config>
__device__ __forceinline__ void block_sums(typename MmaTile<Config>::Part& own,
                                           const MmaTile<Config>& tile, const MmaCall& call,
                                           const MmaShare& share, const MmaPlace& at, bool first) {
  MmaOperands<Config> operands(call, share, tile.shared, at.warp_m, at.warp_n, at.way, at.thread);
  if (Config::dependent_launch != 0 && first) {
    block_fill_ahead(operands, share.stages);
  } else {
    block_fill(operands, share.stages);
  }
  MmaSums<Config> sums = {};
  block_multiply<Config>(sums, operands, share.stages);
  __syncthreads();
  if constexpr (MmaPlan<Config>::exchanged) {
    const int place = at.thread % MmaPlan<Config>::way_threads;
    tile.warp_send(sums, at.way, place);
    __syncthreads();
    tile.warp_add(own, sums, at.way, place);
    __syncthreads();
  } else {
    tile.keep(own, sums);
  }
}

// Into the tile: parts, or whole sums one warp after another; and from there to the output.
template <class Config>
__device__ __forceinline__ void block_output(const typename MmaTile<Config>::Part& own,
                                             const MmaTile<Config>& tile, const MmaCall& call,
                                             const MmaShare& share, const MmaPlace& at) {
  if (MmaPlan<Config>::exchanged || at.way == 0)
    tile.template warp_put<false>(own, at.way, at.warp_m, at.warp_n, at.thread % 32);
  if constexpr (!MmaPlan<Config>::exchanged) {
#pragma unroll 1
    for (int next = 1; next < Config::warps_k; ++next) {
      __syncthreads();
      if (next == at.way)
        tile.template warp_put<true>(own, 0, at.warp_m, at.warp_n, at.thread % 32);
    }
  }
  block_finish<Config>(tile, call, share, at.thread);
}

template <class Config>
__device__ __forceinline__ void block_walk(const MmaTile<Config>& tile, const MmaCall& call,
                                           MmaPlace at) {
  int left = MmaWalk<Config>(call).stages;
#pragma unroll 1
  while (left > 0) {
    at.forget();
    typename MmaTile<Config>::Part own;
    const MmaWalk<Config> walk(call);
    const auto part = walk.last(left, call);
    block_sums<Config>(own, tile, call, part.share, at, left == walk.stages);
    left -= part.share.stages;
    if (part.ends_tile) {
      block_collect<Config>(own, part.first_block, part.block, at.thread, call);
      block_output<Config>(own, tile, call, part.share, at);
      __syncthreads();
    } else {
      block_leave<Config>(own, part.block, at.thread, call);
    }
  }
}

template <class Config>
__device__ __forceinline__ void block_mma_tile(u32 shared, const MmaCall& call,
                                               const MmaShare& share) {
  const MmaTile<Config> tile = {MmaTile<Config>::aligned(shared)};
  const MmaPlace at = mma_place<Config>();
  typename MmaTile<Config>::Part own;
  block_sums<Config>(own, tile, call, share, at, true);
  block_output<Config>(own, tile, call, share, at);
}

template <class Config>
__device__ __forceinline__ void block_mma(u32 shared, const MmaCall& call) {
  if constexpr (Config::stream_k != 0) {
    const MmaTile<Config> tile = {MmaTile<Config>::aligned(shared)};
    block_walk<Config>(tile, call, mma_place<Config>());
  } else {
    block_mma_tile<Config>(shared, call, mma_share<Config>(call));
  }
}

}  // namespace humming
