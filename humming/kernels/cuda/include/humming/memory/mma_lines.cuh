// Rows of bytes that go to shared memory as lines of 128 bytes, [line][row][128], whose eight chunks of
//   16 bytes are swizzled by the row: a thread's share of each stage.
// Run by one thread.
// Reads -> writes: global -> shared memory, 16 bytes at a time.
// Source: own, as mma_operands.cuh does it for numbers of 16 bits.
#pragma once
#include "humming/ptx/async.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/experts.cuh"

namespace humming {

template <int rows, int lines, int threads>
struct MmaLines {
  static constexpr int line_bytes = 128, stage_bytes = lines * line_bytes;
  static constexpr int row_chunks = stage_bytes / 16;
  static constexpr int row_step = threads / row_chunks;  // rows between a thread's chunks
  static constexpr int each = (rows + row_step - 1) / row_step;
  static constexpr bool even = row_step % 8 == 0;  // they are swizzled alike

  const char* source;  // of this thread's first chunk in the next stage
  i64 step_bytes;
  int rows_left, bytes_left;  // from there on
  u32 target;
  int first_row, chunk;  // of this thread
#if __CUDA_ARCH__ < 800
  Words4 held[each];
#endif

  // `begin`: the block's first row, where the first stage begins; `limit`: rows from there on that
  // exist; `bytes`: how many of a row.
  __device__ __forceinline__ MmaLines(const char* begin, i64 row_bytes, int limit, int bytes,
                                      int thread)
      : first_row(thread / row_chunks), chunk(thread % row_chunks) {
    source = begin + first_row * row_bytes + chunk * 16;
    step_bytes = row_step * row_bytes;
    rows_left = min(limit, rows) - first_row;
    bytes_left = bytes - chunk * 16;
    target = chunk / 8 * (rows * line_bytes) + first_row * line_bytes;
    if constexpr (even) target += (chunk % 8 ^ first_row % 8) * 16;
  }

  __device__ __forceinline__ u32 place(int i) const {
    const u32 line = target + i * row_step * line_bytes;
    if constexpr (even) return line;
    return line + (chunk % 8 ^ (first_row + i * row_step) % 8) * 16;
  }
  __device__ __forceinline__ bool here(int i) const { return rows_left > i * row_step; }

  // Chunk i of this thread, in order; `streamed`: read once by the whole grid.
  template <bool streamed>
  __device__ __forceinline__ void put(bool wanted, u32 base, int i) {
#if __CUDA_ARCH__ >= 800
    if constexpr (streamed && lines == 1) {
      ptx::cp_async_streamed_if(wanted && here(i), base + place(i), source);
    } else {
      ptx::cp_async_16_if(wanted && here(i), base + place(i), source,
                          lines == 1 || bytes_left > 0 ? 16 : 0);
    }
#else
    if (wanted && here(i)) ptx::store_shared_words4(base + place(i), held[i]);
#endif
    source += step_bytes;
  }

  // Where nothing is copied asynchronously: starts the loads of all that will be put.
  __device__ __forceinline__ void fetch() {
#if __CUDA_ARCH__ < 800
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (here(i))
        held[i] = bytes_left > 0 ? ptx::load_global_words4(source + i * step_bytes) : Words4{};
#endif
  }

  // To the next stage, from behind its last chunk; and by some stages back.
  __device__ __forceinline__ void next() {
    source += stage_bytes - each * step_bytes;
    bytes_left -= stage_bytes;
  }
  __device__ __forceinline__ void back(int stages) {
    source -= stages * stage_bytes;
    bytes_left += stages * stage_bytes;
  }
};

// The same of rows that lie anywhere: those of a tile of experts' rows of x, from `x_row` on.
template <int rows, int lines, int threads>
struct MmaGatheredLines : MmaLines<rows, lines, threads> {
  using Lines = MmaLines<rows, lines, threads>;
  using Lines::each, Lines::source;
  u32 sixteens[each];  // where they begin, in 16 bytes

  template <class Call>
  __device__ __forceinline__ MmaGatheredLines(const Call& call, int x_row, int skipped, int thread)
      : Lines(static_cast<const char*>(call.x) + skipped, 0, call.m - x_row,
              static_cast<int>(call.x_row_stride) - skipped, thread) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int row = min(x_row + this->first_row + i * Lines::row_step, call.m - 1);
      sixteens[i] = static_cast<u32>(x_row_of(call, row) * (call.x_row_stride / 16));
    }
  }

  template <bool streamed>
  __device__ __forceinline__ void put(bool wanted, u32 base, int i) {
#if __CUDA_ARCH__ >= 800
    ptx::cp_async_16_if(wanted && this->here(i), base + this->place(i), chunk_source(i),
                        lines == 1 || this->bytes_left > 0 ? 16 : 0);
#else
    if (wanted && this->here(i)) ptx::store_shared_words4(base + this->place(i), this->held[i]);
#endif
  }
  __device__ __forceinline__ void fetch() {
#if __CUDA_ARCH__ < 800
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (this->here(i))
        this->held[i] = this->bytes_left > 0 ? ptx::load_global_words4(chunk_source(i)) : Words4{};
#endif
  }

 private:
  __device__ __forceinline__ const char* chunk_source(int i) const {
    return source + static_cast<u64>(sixteens[i]) * 16;
  }
};

// Of codes that are no rows: nothing.
struct MmaNoLines {
  static constexpr int each = 0;
  __device__ __forceinline__ MmaNoLines(const char*, i64, int, int, int) {}
  template <bool streamed>
  __device__ __forceinline__ void put(bool, u32, int) {}
  __device__ __forceinline__ void fetch() {}
  __device__ __forceinline__ void next() {}
  __device__ __forceinline__ void back(int) {}
};

}  // namespace humming
