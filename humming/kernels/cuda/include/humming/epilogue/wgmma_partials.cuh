// Sums of blocks that share a tile's k: each owns some pieces of the tile, and leaves the others'
//   part of them for their owners to add up.
// Run by a warpgroup, which meets the same warpgroup of the other blocks.
// Reads -> writes: accumulators <-> partials in global memory [slot][warpgroup][piece][column]
//   [thread] of four fp32; a word of state for each tile and warpgroup, zero again at the end.
// Source: own. Nobody has to wait, so blocks need not run at once: who has waited in vain leaves its
//   own pieces too, to the last to come. Sums run in the order of k, so that equal inputs give equal
//   bits.
#pragma once
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/move.cuh"
#include "humming/ptx/sync.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

template <class Config>
using WgmmaSums = float[Config::tiles_n][Config::block_m / 8][4];

// The state: how many sharers have come, how many are done with it, and which have left early.
struct MeetState {
  static constexpr u32 come = 1, done = 1 << 8, left = 1 << 16;
  static constexpr int patience = 8;  // looks, each a way to L2 and back

  static __device__ __forceinline__ int come_of(u32 state) { return state & 255; }
  static __device__ __forceinline__ int done_of(u32 state) { return state >> 8 & 255; }
};

template <class Config, class Plan_ = WgmmaPlan<Config>>
struct WgmmaPartials {
  using Plan = Plan_;
  using Schedule = WgmmaSchedule<Config, Plan>;
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
                                      const Schedule& schedule) const {
    u32* state = states + schedule.streamed_tile(work) * Config::warpgroups + group;
    const int own_slot = schedule.slot(work, work.rank);
    store(sums, own_slot, ~pieces_of(1u << work.rank, work.sharers));
    u32 sharers = agree([&] { return come(state, work); });
    if (sharers == 0) {
      store(sums, own_slot, pieces_of(1u << work.rank, work.sharers));
      sharers = agree([&] { return leave(state, work); });
    }
    if (thread == 0) done(state, work);
    const u32 mine = pieces_of(sharers, work.sharers);
    add(sums, work, schedule, mine);
    return mine;
  }

 private:
  // Pieces of these sharers, a bit each.
  static __device__ __forceinline__ u32 pieces_of(u32 sharers, int all) {
    u32 bits = 0;
#pragma unroll
    for (int p = 0; p < pieces; ++p)
      if (sharers >> p % all & 1) bits |= 1u << p;
    return bits;
  }
  // What one thread says, after what all have stored and before what all do next.
  template <class Says>
  __device__ __forceinline__ u32 agree(Says says) const {
    ptx::barrier_sync<128>(1 + group);
    if (thread == 0) ptx::store_shared_u32(flag, says());
    ptx::barrier_sync<128>(1 + group);
    return ptx::load_shared_u32(flag);
  }

  // A bit for each sharer whose pieces fall to this one; none: the others are too late.
  static __device__ __forceinline__ u32 come(u32* state, const WgmmaWork& work) {
    u32 seen = ptx::add_global(state, MeetState::come);
    if (MeetState::come_of(seen) + 1 == work.sharers) return 1u << work.rank | seen >> 16;
    for (int looks = 0; looks < MeetState::patience; ++looks) {
      seen = ptx::load_global_acquire(state);
      if (MeetState::come_of(seen) == work.sharers) return 1u << work.rank;
    }
    return 0;
  }
  // As above, after this one's pieces have been left: whoever comes last from now on has them.
  static __device__ __forceinline__ u32 leave(u32* state, const WgmmaWork& work) {
    const u32 seen = ptx::add_global(state, MeetState::left << work.rank);
    return MeetState::come_of(seen) == work.sharers ? 1u << work.rank : 0;
  }
  static __device__ __forceinline__ void done(u32* state, const WgmmaWork& work) {
    const u32 seen = ptx::add_global_relaxed(state, MeetState::done);
    if (MeetState::done_of(seen) + 1 == work.sharers) ptx::store_global_u32(state, 0);
  }

  __device__ __forceinline__ char* place(int slot) const {
    return reinterpret_cast<char*>(partials) +
           (static_cast<i64>(slot * Config::warpgroups + group) *
                (Config::tiles_n * Plan::columns * 128) +
            thread) *
               16;
  }
  __device__ __forceinline__ void store(const WgmmaSums<Config>& sums, int slot, u32 which) const {
    char* target = place(slot);
#pragma unroll
    for (int p = 0; p < pieces; ++p)
      if (which >> p & 1) {
        const int t = p % Config::tiles_n, c0 = p / Config::tiles_n * piece_columns;
#pragma unroll
        for (int c = c0; c < c0 + piece_columns; ++c) {
          Words4 v;
#pragma unroll
          for (int i = 0; i < 4; ++i) v.word[i] = __float_as_uint(sums[t][c][i]);
          ptx::store_global_words4(target + (t * Plan::columns + c) * 2048, v);
        }
      }
  }
  // The sums of pieces `mine` over all sharers, in their order; this one's own part of its own
  // pieces is still in `sums`.
  __device__ __forceinline__ void add(WgmmaSums<Config>& sums, const WgmmaWork& work,
                                      const Schedule& schedule, u32 mine) const {
#pragma unroll
    for (int p = 0; p < pieces; ++p)
      if (mine >> p & 1) {
        const int t = p % Config::tiles_n, c0 = p / Config::tiles_n * piece_columns;
        const bool kept = p % work.sharers == work.rank;
        const int before = kept ? work.rank : work.sharers;
        float first[piece_columns][4] = {};
#pragma unroll 1
        for (int rank = 0; rank < before; ++rank)
          add_piece(first, place(schedule.slot(work, rank)) + (t * Plan::columns + c0) * 2048);
#pragma unroll
        for (int c = 0; c < piece_columns; ++c)
#pragma unroll
          for (int i = 0; i < 4; ++i) first[c][i] += kept ? sums[t][c0 + c][i] : 0.0f;
#pragma unroll 1
        for (int rank = before + 1; rank < work.sharers; ++rank)
          add_piece(first, place(schedule.slot(work, rank)) + (t * Plan::columns + c0) * 2048);
#pragma unroll
        for (int c = 0; c < piece_columns; ++c)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[t][c0 + c][i] = first[c][i];
      }
  }
  static __device__ __forceinline__ void add_piece(float (&sum)[piece_columns][4],
                                                   const char* source) {
    Words4 v[piece_columns];
#pragma unroll
    for (int c = 0; c < piece_columns; ++c) v[c] = ptx::load_global_words4(source + c * 2048);
#pragma unroll
    for (int c = 0; c < piece_columns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[c][i] += __uint_as_float(v[c].word[i]);
  }
};

}  // namespace humming
