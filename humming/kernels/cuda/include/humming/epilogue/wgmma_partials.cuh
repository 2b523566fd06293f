// Sums of blocks that share a tile's k: each leaves its own, then each adds up a part of all.
// Run by a warpgroup, which meets the same warpgroup of the other blocks.
// Reads -> writes: accumulators <-> partials in global memory [slot][warpgroup][piece][column]
//   [thread] of four fp32; a word of state for each tile and warpgroup, zero again at the end.
// Source: own. Nobody has to wait, so blocks need not run at once: who has waited in vain leaves its
//   pieces to the last to come. Sums run in the order of k, so that equal inputs give equal bits.
#pragma once
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/move.cuh"
#include "humming/ptx/sync.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

template <class Config>
using WgmmaSums = float[Config::tiles_n][WgmmaPlan<Config>::columns][4];

// The state: how many sharers have come, how many are done with it, and which have left early.
struct MeetState {
  static constexpr u32 come = 1, done = 1 << 8, left = 1 << 16;
  static constexpr int patience = 6;  // looks, each a way to L2 and back

  static __device__ __forceinline__ int come_of(u32 state) { return state & 255; }
  static __device__ __forceinline__ int done_of(u32 state) { return state >> 8 & 255; }
};

template <class Config>
struct WgmmaPartials {
  using Plan = WgmmaPlan<Config>;
  static constexpr int piece_columns = Plan::staged_columns;
  static constexpr int pieces = Config::tiles_n * Plan::columns / piece_columns;

  float* partials;
  u32* states;
  u32 flag;  // a word of shared memory
  int group, thread;

  __device__ __forceinline__ WgmmaPartials(const WgmmaCall& call, u32 shared, int group_,
                                           int thread_)
      : partials(call.partials),
        states(call.counters),
        flag(shared + Plan::flags + 4 * group_),
        group(group_),
        thread(thread_) {}

  // A bit for each piece (tile t, columns c: t + c * tiles_n) whose sum over all of k is now in
  // `sums`; other blocks have the others.
  __device__ __forceinline__ u32 meet(WgmmaSums<Config>& sums, const WgmmaWork& work,
                                      const WgmmaSchedule<Config>& schedule) const {
    store(sums, schedule.slot(work, work.rank));
    ptx::barrier_sync<128>(1 + group);
    if (thread == 0) {
      u32* state = states + schedule.streamed_tile(work) * Config::warpgroups + group;
      ptx::store_shared_u32(flag, duties(state, work));
    }
    ptx::barrier_sync<128>(1 + group);
    const u32 sharers = ptx::load_shared_u32(flag);
    u32 own = 0;
#pragma unroll
    for (int p = 0; p < pieces; ++p)
      if (sharers >> p % work.sharers & 1) own |= 1u << p;
    if (own == 0) return 0;
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[t][c][i] = 0.0f;
#pragma unroll 2
    for (int rank = 0; rank < work.sharers; ++rank) add(sums, schedule.slot(work, rank), own);
    return own;
  }

 private:
  // A bit for each sharer whose pieces fall to this one.
  __device__ __forceinline__ u32 duties(u32* state, const WgmmaWork& work) const {
    u32 seen = ptx::add_global(state, MeetState::come), mine = 1u << work.rank;
    if (MeetState::come_of(seen) + 1 == work.sharers) {
      mine |= seen >> 16;
    } else {
      int looks = 0;
      do {
        seen = ptx::load_global_acquire(state);
      } while (MeetState::come_of(seen) != work.sharers && ++looks < MeetState::patience);
      if (MeetState::come_of(seen) != work.sharers) {
        seen = ptx::add_global(state, MeetState::left << work.rank);
        if (MeetState::come_of(seen) != work.sharers) mine = 0;
      }
    }
    seen = ptx::add_global(state, MeetState::done);
    if (MeetState::done_of(seen) + 1 == work.sharers) ptx::store_global_u32(state, 0);
    return mine;
  }
  __device__ __forceinline__ char* place(int slot) const {
    return reinterpret_cast<char*>(partials) +
           (static_cast<i64>(slot * Config::warpgroups + group) *
                (Config::tiles_n * Plan::columns * 128) +
            thread) *
               16;
  }
  __device__ __forceinline__ void store(const WgmmaSums<Config>& sums, int slot) const {
    char* target = place(slot);
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c) {
        Words4 v;
#pragma unroll
        for (int i = 0; i < 4; ++i) v.word[i] = __float_as_uint(sums[t][c][i]);
        ptx::store_global_words4(target + (t * Plan::columns + c) * 2048, v);
      }
  }
  __device__ __forceinline__ void add(WgmmaSums<Config>& sums, int slot, u32 own) const {
    const char* source = place(slot);
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
      for (int c0 = 0; c0 < Plan::columns; c0 += piece_columns)
        if (own >> (t + c0 / piece_columns * Config::tiles_n) & 1) {
#pragma unroll
          for (int c = c0; c < c0 + piece_columns; ++c) {
            const Words4 v = ptx::load_global_words4(source + (t * Plan::columns + c) * 2048);
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[t][c][i] += __uint_as_float(v.word[i]);
          }
        }
  }
};

}  // namespace humming
