// Sums of blocks of a cluster that share a tile's k: each owns some pieces of the tile, and sends the
//   others' part of them into their owners' shared memory.
// Run by a warpgroup, which meets the same warpgroup of the other blocks.
// Reads -> writes: accumulators -> shared memory of the others [sender][piece][column][thread] of
//   four fp32 -> accumulators.
// Source: own. Sums run in the order of k, so that equal inputs give equal bits. A place is free
//   again once all four warps of its owner have read it, which they tell every sender.
#pragma once
#include "humming/memory/barrier.cuh"
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/grid.cuh"
#include "humming/ptx/move.cuh"
#include "humming/ptx/tensor.cuh"

namespace humming {

// `Plan_` is the family's own.
template <class Config, class Plan_ = WgmmaPlan<Config>>
struct WgmmaExchange {
  using Plan = Plan_;
  static constexpr int sharers = Config::split_k, columns = Plan::staged_columns;

  u32 received, full, free;
  int thread, rank;
  u32 parity = 0;

  __device__ __forceinline__ WgmmaExchange(u32 shared, int group, int thread_, int rank_)
      : received(shared + Plan::exchange + group * Plan::exchange_bytes + thread_ * 16),
        full(shared + Plan::exchange_barriers + 16 * group),
        free(full + 8),
        thread(thread_),
        rank(rank_) {}

  // A bit for each piece (tile t, columns c: t + c * tiles_n) whose sum over all of k is now in
  // `sums`; other blocks have the others.
  __device__ __forceinline__ u32 meet(float (&sums)[Config::tiles_n][Plan::columns][4]) {
    u32 mine = 0;
    int owned = 0;
#pragma unroll
    for (int p = 0; p < Plan::pieces; ++p)
      if (p % sharers == rank) mine |= 1u << p, ++owned;
    if (thread == 0) ptx::mbarrier_expect(full, owned * (sharers - 1) * Plan::piece_sums_bytes);
    wait_full(free, parity ^ 1);
    send(sums);
    wait_full(full, parity);
    parity ^= 1;
    add(sums);
    __syncwarp();
    if (thread % 32 < sharers) ptx::cluster_barrier_arrive(ptx::cluster_map(free, thread % 32));
    return mine;
  }

 private:
  // Where in an owner's shared memory the sender `from` leaves piece `p`.
  static __device__ __forceinline__ u32 offset(int from, int owner, int p) {
    const int place = from - (from > owner);
    return (place * Plan::own_pieces + p / sharers) * Plan::piece_sums_bytes;
  }
  __device__ __forceinline__ void send(
      const float (&sums)[Config::tiles_n][Plan::columns][4]) const {
#pragma unroll
    for (int owner = 0; owner < sharers; ++owner) {
      if (owner == rank) continue;
      const u32 target = ptx::cluster_map(received, owner), done = ptx::cluster_map(full, owner);
#pragma unroll
      for (int p = owner; p < Plan::pieces; p += sharers) {
        const int t = p % Config::tiles_n, c0 = p / Config::tiles_n * columns;
#pragma unroll
        for (int c = 0; c < columns; ++c)
          ptx::store_cluster_async(target + offset(rank, owner, p) + c * 2048, sums[t][c0 + c],
                                   done);
      }
    }
  }
  // This block's own part of its pieces is still in `sums`.
  __device__ __forceinline__ void add(float (&sums)[Config::tiles_n][Plan::columns][4]) const {
#pragma unroll
    for (int owner = 0; owner < sharers; ++owner) {
      if (owner != rank) continue;
#pragma unroll
      for (int p = owner; p < Plan::pieces; p += sharers) {
        const int t = p % Config::tiles_n, c0 = p / Config::tiles_n * columns;
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          float whole[4] = {};
#pragma unroll
          for (int from = 0; from < sharers; ++from) {
            if (from == owner) {
#pragma unroll
              for (int i = 0; i < 4; ++i) whole[i] += sums[t][c0 + c][i];
            } else {
              const Words4 v =
                  ptx::load_shared_words4(received + offset(from, owner, p) + c * 2048);
#pragma unroll
              for (int i = 0; i < 4; ++i) whole[i] += __uint_as_float(v.word[i]);
            }
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[t][c0 + c][i] = whole[i];
        }
      }
    }
  }
};

}  // namespace humming
