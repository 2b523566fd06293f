// From the experts that a router chose to rows sorted by experts, and to the tiles that grouped
//   kernels take: what one block does before them.
// Run by all threads of the only block; warps: whole and converged.
// Reads -> writes: expert ids -> order of rows, offsets, tiles in global memory.
// Source: own. A counting sort whose warps have runs of rows one after another, so that it is stable
//   and its result does not depend on timing.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

// One bucket more than experts: rows of other ranks, whose expert is -1.
struct ExpertBuckets {
  int* prefix;  // shared [buckets + 1]: where each bucket's rows begin
  int* tiles;   // shared [buckets + 1]: where each bucket's tiles begin
  int* counts;  // shared [warps][buckets], of sorting
  int buckets;  // experts, and one where there may be rows of none

  // Shared values become the sums of those before them; one warp.
  static __device__ __forceinline__ void warp_scan(int* values, int count) {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int first = 0; first < count; first += 32) {
      const int i = first + lane, own = i < count ? values[i] : 0;
      int sum = own;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
        if (lane >= step) sum += other;
      }
      if (i < count) values[i] = before + sum - own;
      before += __shfl_sync(0xFFFFFFFFu, sum, 31);
    }
    if (lane == 0) values[count] = before;
  }
};

// The tiles of block_m rows, of rows that begin at begin(b) and are so many; `none` is the bucket of
// other ranks' rows.
template <class Begin, class Count>
__device__ __forceinline__ void block_list_tiles(const ExpertBuckets& buckets, Begin begin,
                                                 Count count, int none, int block_m, int4* tiles,
                                                 int most, const int* order, int* places) {
  __syncthreads();
  for (int b = threadIdx.x; b < buckets.buckets; b += blockDim.x)
    buckets.tiles[b] = (count(b) + block_m - 1) / block_m;
  __syncthreads();
  if (threadIdx.x < 32) ExpertBuckets::warp_scan(buckets.tiles, buckets.buckets);
  __syncthreads();
  const int all = min(buckets.tiles[buckets.buckets], most);  // offsets may be in no order
  for (int t = threadIdx.x; t < most; t += blockDim.x) {
    int4 tile = make_int4(-1, 0, 0, all);
    if (t < all) {
      int low = 0, high = buckets.buckets;  // the last bucket whose tiles begin at or before t
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (buckets.tiles[middle] <= t) {
          low = middle;
        } else {
          high = middle;
        }
      }
      const int done = (t - buckets.tiles[low]) * block_m;
      tile = make_int4(low == none ? -1 : low, begin(low) + done, min(block_m, count(low) - done),
                       all);
    }
    tiles[t] = tile;
  }
  if (places == nullptr) return;
  __syncthreads();  // tiles are read back by other threads
  for (i64 i = threadIdx.x; i < static_cast<i64>(all) * block_m; i += blockDim.x) {
    const int4 tile = tiles[i / block_m];
    const int own = static_cast<int>(i % block_m);
    places[i] = own < tile.z ? order[tile.y + own] : 0;
  }
}

struct ExpertSort {
  const int* ids;  // [rows]
  int* order;      // [rows]: rows by experts, those of other ranks last
  int* offsets;    // [experts + 2]
  int4* tiles[2];  // of two block sizes, or null
  int* places[2];  // [most][block_m] each: the rows of tiles, a place each
  int block_m[2], most[2];
  int rows, experts, first;
};

__device__ __forceinline__ void block_sort_experts(int* shared, const ExpertSort& call) {
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int all = call.experts + 1;
  const ExpertBuckets buckets = {shared, shared + all + 1, shared + 2 * (all + 1), all};
  int* own = buckets.counts + warp * all;
  const int begin = static_cast<int>(static_cast<i64>(call.rows) * warp / warps);
  const int end = static_cast<int>(static_cast<i64>(call.rows) * (warp + 1) / warps);
  auto bucket_of = [&](int row) {
    const int expert = call.ids[row] - call.first;
    return expert >= 0 && expert < call.experts ? expert : call.experts;
  };

  for (int i = threadIdx.x; i < warps * all; i += blockDim.x) buckets.counts[i] = 0;
  __syncthreads();
  for (int row = begin + lane; row < end; row += 32) atomicAdd(own + bucket_of(row), 1);
  __syncthreads();
  for (int b = threadIdx.x; b < all; b += blockDim.x) {
    int total = 0;
    for (int w = 0; w < warps; ++w) {
      const int count = buckets.counts[w * all + b];
      buckets.counts[w * all + b] = total;
      total += count;
    }
    buckets.prefix[b] = total;
  }
  __syncthreads();
  if (warp == 0) ExpertBuckets::warp_scan(buckets.prefix, all);
  __syncthreads();
  for (int b = threadIdx.x; b <= all; b += blockDim.x) call.offsets[b] = buckets.prefix[b];
  for (int first = begin; first < end; first += 32) {
    const int row = first + lane;
    const bool here = row < end;
    const u32 active = __ballot_sync(0xFFFFFFFFu, here);
    if (here) {
      const int bucket = bucket_of(row);
      const u32 alike = __match_any_sync(active, bucket);
      const int rank = __popc(alike & ((1u << lane) - 1));
      const int before = own[bucket];
      call.order[buckets.prefix[bucket] + before + rank] = row;
      __syncwarp(active);
      if (rank == 0) own[bucket] = before + __popc(alike);
    }
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (call.tiles[i] != nullptr)
      block_list_tiles(
          buckets, [&](int b) { return buckets.prefix[b]; },
          [&](int b) { return buckets.prefix[b + 1] - buckets.prefix[b]; }, call.experts,
          call.block_m[i], call.tiles[i], call.most[i], call.order, call.places[i]);
}

struct ExpertTiles {
  const int* groups;  // offsets of sorted rows, or counts of masked ones
  const int* order;   // sorted rows, or null
  int4* tiles;
  int* places;  // as ExpertSort's, or null
  int block_m, most, experts, rows, capacity;
  int sorted;  // groups are [experts + 2] offsets, and the last bucket is of other ranks
  int masked;
};

__device__ __forceinline__ void block_list_experts(int* shared, const ExpertTiles& call) {
  const int all = call.experts + call.sorted;
  const ExpertBuckets buckets = {shared, shared + all + 1, nullptr, all};
  auto begin = [&](int b) {
    return call.masked ? b * call.capacity : max(0, min(call.groups[b], call.rows));
  };
  auto count = [&](int b) {
    if (call.masked) return max(0, min(call.groups[b], call.capacity));
    return max(0, min(call.groups[b + 1], call.rows) - max(0, call.groups[b]));
  };
  block_list_tiles(buckets, begin, count, call.sorted ? call.experts : -1, call.block_m, call.tiles,
                   call.most, call.order, call.places);
}

// Of a grid whose threads have a run of eight neighbours each.
__device__ __forceinline__ i64 grid_thread() {
  return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace humming
