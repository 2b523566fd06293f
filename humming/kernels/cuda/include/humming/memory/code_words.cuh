// A lane's words of one 16x64 tile, from where the tile lies: 128 * bits contiguous bytes, a plane
//   after the other, in each 4 * width bytes a lane.
// Run by one thread.
// Reads -> writes: packed codes in global or shared memory -> registers.
// Source: own; the map is written in quantize/layout_cuda.py (cuda_n16k64).
#pragma once
#include "humming/dequant/planes.cuh"
#include "humming/ptx/move.cuh"

namespace humming {

// Bytes of a tile, of a lane's place in plane `p`, and from its place in the first plane to that.
template <int bits>
struct TilePlanes {
  static constexpr int tile_bytes = 128 * bits;
  static __device__ constexpr int lane_bytes(int p) {
    return Planes<bits>::width(p) == 8 ? 16 : Planes<bits>::width(p) * 4;
  }
  static __device__ __forceinline__ u32 lane_offset(u32 lane) { return lane * lane_bytes(0); }
  static __device__ __forceinline__ int offset(int p, u32 lane) {
    return Planes<bits>::first_word(p) * 128 -
           static_cast<int>(lane) * (lane_bytes(0) - lane_bytes(p));
  }
};

// `tile` is the lane's place in the tile's first plane; a plane of 8 bits is two runs of 16 bytes a
// lane.
template <int bits, int plane = 0>
__device__ __forceinline__ void thread_load_codes(CodeWords<bits>& codes, const char* tile,
                                                  u32 lane) {
  if constexpr (plane < Planes<bits>::count) {
    constexpr int width = Planes<bits>::width(plane), first = Planes<bits>::first_word(plane);
    const char* source = tile + TilePlanes<bits>::offset(plane, lane);
    if constexpr (width >= 4) {
#pragma unroll
      for (int run = 0; run < width / 4; ++run) {
        const Words4 v = ptx::load_global_streamed(source + run * 512);
#pragma unroll
        for (int j = 0; j < 4; ++j) codes.word[first + run * 4 + j] = v.word[j];
      }
    } else if constexpr (width == 2) {
      const Words2 v = ptx::load_global_streamed_words2(source);
      codes.word[first] = v.word[0], codes.word[first + 1] = v.word[1];
    } else {
      codes.word[first] = ptx::load_global_streamed_u32(source);
    }
    thread_load_codes<bits, plane + 1>(codes, tile, lane);
  }
}

template <int bits, int plane = 0>
__device__ __forceinline__ void thread_load_codes(CodeWords<bits>& codes, u32 tile, u32 lane) {
  if constexpr (plane < Planes<bits>::count) {
    constexpr int width = Planes<bits>::width(plane), first = Planes<bits>::first_word(plane);
    const u32 source = tile + TilePlanes<bits>::offset(plane, lane);
    if constexpr (width >= 4) {
#pragma unroll
      for (int run = 0; run < width / 4; ++run) {
        const Words4 v = ptx::load_shared_words4(source + run * 512);
#pragma unroll
        for (int j = 0; j < 4; ++j) codes.word[first + run * 4 + j] = v.word[j];
      }
    } else if constexpr (width == 2) {
      const Words2 v = ptx::load_shared_words2(source);
      codes.word[first] = v.word[0], codes.word[first + 1] = v.word[1];
    } else {
      codes.word[first] = ptx::load_shared_u32(source);
    }
    thread_load_codes<bits, plane + 1>(codes, tile, lane);
  }
}

}  // namespace humming
