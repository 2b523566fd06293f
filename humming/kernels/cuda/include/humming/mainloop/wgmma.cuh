// A block of one thread that fills the ring and warpgroups that multiply: weights are dequantized in
//   registers, x comes from shared memory, sums stay in registers over all of k.
// Run by all threads of a block.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: own. Sets of A registers: while the tensor cores multiply some, the next is dequantized,
//   and the codes after it are read.
#pragma once
#include "humming/dequant/warpgroup_product.cuh"
#include "humming/epilogue/wgmma.cuh"
#include "humming/epilogue/wgmma_exchange.cuh"
#include "humming/memory/wgmma_ring.cuh"
#include "humming/memory/wgmma_scales.cuh"
#include "humming/ptx/grid.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void thread_fill(const TensorMap* x_map, const TensorMap* codes_map,
                                            const WgmmaCall& call, u32 shared) {
  using Plan = WgmmaPlan<Config>;
  WgmmaSchedule<Config> schedule(call);
  RingFill<Config> fill{x_map, codes_map, shared, {}};
  WgmmaWork work;
  if (!schedule.next(work)) return;
  ptx::prefetch_tensor_map(codes_map);
  ptx::prefetch_tensor_map(x_map);
  // What the kernel before does not write, before it has ended.
  int stages = work.units * 2;
  const int early = min(stages, Config::num_stages);
  const RingPlace begin = fill.place;
#pragma unroll 1
  for (int s = 0; s < early; ++s) {
    fill.weights(work, s);
    fill.place.template advance<Config::num_stages>();
  }
  fill.place = begin;
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
#pragma unroll 1
  for (int s = 0; s < early; ++s) fill.x(work, s);
  int s = early;
  do {
    stages = work.units * 2;
#pragma unroll 1
    for (; s < stages; ++s) {
      fill.weights(work, s);
      fill.x(work, s);
    }
    s = 0;
  } while (schedule.next(work));
}

// Fragments are in their registers before what follows, and stay there until what came before.
template <int tiles>
__device__ __forceinline__ void settle_fragments(u32 (&a)[tiles][4]) {
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::settle(a[t][i]);
}

// Of the sums' columns only the first `used` are multiplied; the others are zero.
template <class Config, int used = WgmmaPlan<Config>::columns>
__device__ __forceinline__ void group_multiply(int group, WgmmaSums<Config>& sums,
                                               RingDrain<Config>& drain,
                                               WgmmaScales<Config>& scales, int units) {
  using Plan = WgmmaPlan<Config>;
  using Product = WarpgroupProduct<typename Config::Activation>;
  constexpr int tiles = Config::tiles_n, sets = Plan::sets;

#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[t][c][i] = 0.0f;

  u32 a[sets][tiles][4] = {};
  CodeWords<Config::code_bits> words[tiles];
  u32 before = 0;  // the slot of the stage before, whose products may still run
  drain.acquire();
#pragma unroll
  for (int t = 0; t < tiles; ++t) drain.load(words[t], t);
#pragma unroll 1
  for (int u = 0; u < units; ++u) {
    const bool last = u + 1 == units;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 base = drain.descriptor_base(), slot = drain.place.slot;
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        auto& set = a[step % sets];
#pragma unroll
        for (int t = 0; t < tiles; ++t) {
          scales.begin(t, half * 64 + step * 16, !last);
          scales.weights[t].fragment(set[t], words[t].word, step);
        }
        settle_fragments(set);
        ptx::wgmma_fence();
#pragma unroll
        for (int t = 0; t < tiles; ++t)
          Product::add(*reinterpret_cast<float (*)[used][4]>(&sums[t]), set[t],
                       drain.descriptor(base, step));
        ptx::wgmma_commit();
        if (step == 3) {
          drain.place.template advance<Config::num_stages>();
          if (half == 0 || !last) {
            drain.acquire();
#pragma unroll
            for (int t = 0; t < tiles; ++t) drain.load(words[t], t);
          }
        }
        ptx::wgmma_wait<sets - 1>();
        settle_fragments(a[(step + 1) % sets]);
        if (step == sets - 2 && (half == 1 || u > 0)) drain.release(before);
      }
      before = slot;
    }
    scales.advance();
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::settle(sums[t][c][i]);
  drain.release(before);
}

template <class Config>
__device__ __forceinline__ void group_drain(const WgmmaCall& call, u32 shared, int group, int warp,
                                            int lane) {
  using Plan = WgmmaPlan<Config>;
  WgmmaSchedule<Config> schedule(call);
  RingDrain<Config> drain(shared, group, warp, lane);
  const WgmmaPartials<Config> partials(call, shared, group, warp * 32 + lane);
  WgmmaExchange<Config> exchange(shared, group, warp * 32 + lane, schedule.rank_along_k());
  u32 stores = 0;
  WgmmaWork work;
#pragma unroll 1
  while (schedule.next(work)) {
    WgmmaScales<Config> scales(call, work, group, warp, lane);
    WgmmaSums<Config> sums;
    group_multiply<Config>(group, sums, drain, scales, work.units);
    u32 own = 0xFFFFFFFFu;
    if constexpr (Config::split_k > 1) {
      own = exchange.meet(sums);
    } else if constexpr (Config::stream_k != 0) {
      if (work.sharers > 1) own = partials.meet(sums, work, schedule);
    }
    stores = group_store<Config>(sums, own, call, work, shared, group, warp, lane, stores);
  }
  if constexpr (Config::num_stores > 1)  // shared memory is read until then
    if (warp == 0 && lane == 0) ptx::bulk_wait<0>();
}

template <class Config>
__device__ __forceinline__ void block_wgmma(const TensorMap* x_map, const TensorMap* codes_map,
                                            u32 shared, const WgmmaCall& call) {
  using Plan = WgmmaPlan<Config>;
  shared = Plan::aligned(shared);
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ring_init<Config>(shared);
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if constexpr (Plan::cluster > 1) {  // every block's barriers are ready
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  if (warp >= Plan::consumer_warps) {
    ptx::registers_down<Plan::fill_registers>();
    if (warp == Plan::consumer_warps && lane == 0)
      thread_fill<Config>(x_map, codes_map, call, shared);
  } else {
    ptx::registers_up<Plan::drain_registers>();
    group_drain<Config>(call, shared, warp / 4, warp % 4, lane);
  }
  if constexpr (Plan::cluster > 1) {  // no block ends while another may arrive at its barriers
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

}  // namespace humming
