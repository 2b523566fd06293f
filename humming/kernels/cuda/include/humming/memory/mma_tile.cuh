// The output tile of a block of the mma family in shared memory, and those of its cluster.
// Run by one warp puts its own; any thread reads.
// Reads -> writes: accumulator fragments -> shared memory [row of x][row of w] fp32 -> eight
//   neighbouring rows of w.
// Source: own; warps add in their order, and blocks of a cluster too, so that equal inputs give
//   equal bits.
#pragma once
#include "humming/memory/mma_plan.cuh"
#include "humming/ptx/grid.cuh"
#include "humming/ptx/move.cuh"

namespace humming {

template <class Config>
struct MmaTile {
  using Plan = MmaPlan<Config>;
  u32 shared;

  static __device__ __forceinline__ u32 aligned(u32 shared) {
    return (shared + Plan::base_alignment - 1) / Plan::base_alignment * Plan::base_alignment;
  }

  using Sums = float[Plan::warp_tiles][Plan::columns][4];
  using Part = float[Plan::part_fragments][4];

  // Sums of the warps that share k (`way` of this one): each sends the parts that others own, and
  // adds up its own, in the order of ways.
  __device__ __forceinline__ void warp_send(const Sums& sums, int way, int place) const {
#pragma unroll
    for (int part = 0; part < Plan::parts; ++part)
      if (part != way)
#pragma unroll
        for (int i = 0; i < Plan::part_fragments; ++i)
          ptx::store_shared_words4(exchange(part, way, i, place), words_of(at(sums, part, i)));
  }
  __device__ __forceinline__ void warp_add(Part& own, const Sums& sums, int way, int place) const {
#pragma unroll
    for (int part = 0; part < Plan::parts; ++part)
      if (part == way)
#pragma unroll
        for (int i = 0; i < Plan::part_fragments; ++i) {
          float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
          for (int from = 0; from < Config::warps_k; ++from) {
            if (from == part) {
#pragma unroll
              for (int j = 0; j < 4; ++j) total[j] += at(sums, part, i)[j];
            } else {
              add_words(total, ptx::load_shared_words4(exchange(part, from, i, place)));
            }
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) own[i][j] = total[j];
        }
  }
  // Where no parts are sent a warp's part is all that it has.
  static __device__ __forceinline__ void keep(Part& own, const Sums& sums) {
#pragma unroll
    for (int i = 0; i < Plan::part_fragments; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) own[i][j] = at(sums, 0, i)[j];
  }

  // A warp's part into the tile, or onto what is there.
  template <bool onto>
  __device__ __forceinline__ void warp_put(const Part& own, int way, int warp_m, int warp_n,
                                           int lane) const {
#pragma unroll
    for (int i = 0; i < Plan::part_fragments; ++i) {
      const int fragment = (Plan::exchanged ? way * Plan::part_fragments : 0) + i;
      const int t = fragment / Plan::columns, c = fragment % Plan::columns;
      const int row_of_x = (warp_m * Plan::columns + c) * 8 + lane % 4 * 2;
      const int row_of_w = (warp_n * Plan::warp_tiles + t) * 16 + lane / 4;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const u32 place =
            shared + ((row_of_x + j % 2) * Plan::tile_pitch + row_of_w + j / 2 * 8) * 4;
        float value = own[i][j];
        if constexpr (onto) value += ptx::load_shared_f32(place);
        ptx::store_shared_f32(place, value);
      }
    }
  }

  // Eight neighbours of one row of x, from column `first` of the tile on.
  __device__ __forceinline__ void eight(float (&v)[8], int row, int first) const {
    const u32 place = shared + (row * Plan::tile_pitch + first) * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Words4 words = ptx::load_shared_words4(place + half * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[half * 4 + i] = __uint_as_float(words.word[i]);
    }
  }

  // The sum of the same eight over the blocks of the cluster.
  __device__ __forceinline__ void cluster_eight(float (&v)[8], int row, int first) const {
    const u32 place = shared + (row * Plan::tile_pitch + first) * 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = 0.0f;
#pragma unroll
    for (int rank = 0; rank < Config::split_k; ++rank)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Words4 words = ptx::load_cluster_words4(ptx::cluster_map(place + half * 16, rank));
#pragma unroll
        for (int i = 0; i < 4; ++i) v[half * 4 + i] += __uint_as_float(words.word[i]);
      }
  }

  static __device__ __forceinline__ Words4 words_of(const float (&v)[4]) {
    return {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
            __float_as_uint(v[3])};
  }
  static __device__ __forceinline__ void add_words(float (&v)[4], const Words4& words) {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] += __uint_as_float(words.word[j]);
  }

 private:
  static __device__ __forceinline__ const float (&at(const Sums& sums, int part, int i))[4] {
    const int fragment = part * Plan::part_fragments + i;
    return sums[fragment / Plan::columns][fragment % Plan::columns];
  }
  __device__ __forceinline__ u32 exchange(int part, int from, int i, int place) const {
    const int row = part * (Plan::parts - 1) + (from < part ? from : from - 1);
    return shared + ((row * Plan::part_fragments + i) * Plan::way_threads + place) * 16;
  }
};

}  // namespace humming
