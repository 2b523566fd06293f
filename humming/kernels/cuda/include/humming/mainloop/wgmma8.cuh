// A block of one thread that fills the ring and warpgroups that multiply bytes by bytes; sums stay in
//   registers over all of k. How they multiply is wgmma8_products.cuh and wgmma8_promoted.cuh.
// Run by all threads of a block.
// Reads -> writes: codes of x [m, k], packed codes, scales, bias -> out [m, n].
// Source: own.
#pragma once
#include "humming/epilogue/wgmma_exchange.cuh"
#include "humming/mainloop/wgmma8_promoted.cuh"
#include "humming/ptx/grid.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void thread_fill8(const Wgmma8Maps& maps, const Wgmma8Call& call,
                                             u32 shared) {
  WgmmaSchedule<Config, Wgmma8Plan<Config>> schedule(call);
  Ring8Fill<Config> fill{maps, shared, {}};
  WgmmaWork work;
  if (!schedule.next(work)) return;
  ptx::prefetch_tensor_map(maps.codes);
  ptx::prefetch_tensor_map(maps.x);
  // What the kernel before does not write, before it has ended.
  const int early = min(work.units, Config::num_stages);
  const RingPlace begin = fill.place;
#pragma unroll 1
  for (int u = 0; u < early; ++u) {
    fill.weights(work, u);
    fill.place.template advance<Config::num_stages>();
  }
  fill.place = begin;
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
#pragma unroll 1
  for (int u = 0; u < early; ++u) fill.x(work, u);
  int u = early;
  do {
#pragma unroll 1
    for (; u < work.units; ++u) {
      fill.weights(work, u);
      fill.x(work, u);
    }
    u = 0;
  } while (schedule.next(work));
}

// The one of these that the config names; whole numbers end as fp32.
template <class Config, int used>
__device__ __forceinline__ void group_multiply_exact(Wgmma8Sums<Config>& sums,
                                                     Ring8Drain<Config>& drain, int units) {
  if constexpr (Wgmma8Plan<Config>::direct) {
    group_multiply_direct<Config, used>(sums, drain, units);
  } else if constexpr (Wgmma8Plan<Config>::few) {
    group_multiply_few<Config, used>(sums, drain, units);
  } else {
    group_multiply_registers<Config, used>(sums, drain, units);
  }
}
template <class Config, int used = Wgmma8Plan<Config>::columns>
__device__ __forceinline__ void group_multiply8(WgmmaSums<Config>& sums, Ring8Drain<Config>& drain,
                                                Wgmma8Scales<Config>& scales, int units) {
  if constexpr (Wgmma8Plan<Config>::turns > 1) {
    if (units <= 0) {  // fewer than warpgroups
      clear_sums(sums);
      return;
    }
  }
  if constexpr (Wgmma8Plan<Config>::promoted) {
    group_multiply_promoted<Config, used>(sums, drain, scales, units);
  } else if constexpr (ByteProduct<typename Config::Type>::whole) {
    Wgmma8Sums<Config> exact;
    group_multiply_exact<Config, used>(exact, drain, units);
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
      for (int c = 0; c < Wgmma8Plan<Config>::columns; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[t][c][i] = static_cast<float>(exact[t][c][i]);
  } else {
    group_multiply_exact<Config, used>(sums, drain, units);
  }
}

// As the part of a block that meets others sees it: warpgroups that have rows of their own.
template <class Config>
struct RowGroups : Config {
  static constexpr int warpgroups = Wgmma8Plan<Config>::row_groups;
};

// The first warpgroup of some rows adds up, in the order of turns, what all have.
template <class Config>
__device__ __forceinline__ void group_add_turns(WgmmaSums<Config>& sums, u32 shared, int rows,
                                                int turn, int thread) {
  using Plan = Wgmma8Plan<Config>;
  const u32 name = 1 + Config::warpgroups + rows;
  const u32 first = shared + Plan::turn_sums + rows * (Plan::turns - 1) * Plan::turn_bytes +
                    static_cast<u32>(thread) * 16;
#pragma unroll
  for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c) {
      if (turn == 0) continue;
      Words4 v;
#pragma unroll
      for (int i = 0; i < 4; ++i) v.word[i] = __float_as_uint(sums[t][c][i]);
      ptx::store_shared_words4(
          first + (turn - 1) * Plan::turn_bytes + (t * Plan::columns + c) * 2048, v);
    }
  ptx::barrier_sync<128 * Plan::turns>(name);
  if (turn == 0) {
#pragma unroll
    for (int other = 0; other < Plan::turns - 1; ++other)
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
        for (int c = 0; c < Plan::columns; ++c) {
          const Words4 v = ptx::load_shared_words4(first + other * Plan::turn_bytes +
                                                   (t * Plan::columns + c) * 2048);
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[t][c][i] += __uint_as_float(v.word[i]);
        }
  }
  ptx::barrier_sync<128 * Plan::turns>(name);
}

// This warpgroup's turns of a tile's units; false where another one stores the sums of all.
template <class Config, int used = Wgmma8Plan<Config>::columns>
__device__ __forceinline__ bool group_take_turns(WgmmaSums<Config>& sums, Ring8Drain<Config>& drain,
                                                 Wgmma8Scales<Config>& scales, int units,
                                                 u32 shared, int rows, int turn, int thread) {
  using Plan = Wgmma8Plan<Config>;
  const RingPlace begin = drain.place;
  drain.skip_to_turn(turn);
  group_multiply8<Config, used>(sums, drain, scales, turns_of<Config>(units, turn));
  if constexpr (Plan::turns > 1) {
    drain.place = begin;
    drain.skip(units);
    group_add_turns<Config>(sums, shared, rows, turn, thread);
    return turn == 0;
  }
  return true;
}

template <class Config>
__device__ __forceinline__ void group_drain8(const Wgmma8Call& call, u32 shared, int group,
                                             int warp, int lane) {
  using Plan = Wgmma8Plan<Config>;
  const int rows = group / Plan::turns;
  WgmmaSchedule<RowGroups<Config>, Plan> schedule(call);
  Ring8Drain<Config> drain{shared, rows, warp, lane, {}};
  const WgmmaPartials<RowGroups<Config>, Plan> partials(call, shared, rows, warp * 32 + lane);
  WgmmaExchange<Config, Plan> exchange(shared, rows, warp * 32 + lane, schedule.rank_along_k());
  WgmmaWork work;
#pragma unroll 1
  while (schedule.next(work)) {
    const int turn = drain.turn_of(group);
    Wgmma8Scales<Config> scales(call, work, rows, warp, lane, turn);
    WgmmaSums<Config> sums;
    if (!group_take_turns<Config>(sums, drain, scales, work.units, shared, rows, turn,
                                  warp * 32 + lane)) {
      if constexpr (Config::split_k > 1) exchange.parity ^= 1;  // others of these rows meet
      continue;
    }
    u32 own = 0xFFFFFFFFu;
    if constexpr (Config::split_k > 1) {
      own = exchange.meet(sums);
    } else if constexpr (Config::stream_k != 0) {
      if (work.sharers > 1) own = partials.meet(sums, work, schedule);
    }
    group_store8<Config>(sums, own, call, work, shared, rows, warp, lane);
  }
}

// What scaled codes are looked up in.
template <class Config>
__device__ __forceinline__ void block_fill_table(u32 table) {
  using Codes = typename Config::Codes;
  for (u32 e = threadIdx.x; e < Codes::entries; e += Wgmma8Plan<Config>::threads) {
    const Words2 entry = Codes::entry(e);
    ptx::store_shared_u32(table + e * Codes::entry_bytes, entry.word[0]);
    ptx::store_shared_u32(table + e * Codes::entry_bytes + 4, entry.word[1]);
  }
}

template <class Config>
__device__ __forceinline__ void block_wgmma8(const Wgmma8Maps& maps, u32 shared,
                                             const Wgmma8Call& call) {
  using Plan = Wgmma8Plan<Config>;
  shared = Plan::aligned(shared);
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ring8_init<Config>(shared);
    ptx::fence_barrier_init();
  }
  if constexpr (Plan::scaled_codes) block_fill_table<Config>(shared + Plan::table);
  __syncthreads();
  if constexpr (Plan::cluster > 1) {  // every block's barriers are ready
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  if (warp >= Plan::consumer_warps) {
    ptx::registers_down<Plan::fill_registers>();
    if (warp == Plan::consumer_warps && lane == 0) thread_fill8<Config>(maps, call, shared);
  } else {
    ptx::registers_up<Plan::drain_registers>();
    if constexpr (Config::dependent_launch != 0) ptx::grid_dependency_wait();
    group_drain8<Config>(call, shared, warp / 4, warp % 4, lane);
  }
  if constexpr (Plan::cluster > 1) {  // no block ends while another may arrive at its barriers
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

}  // namespace humming
