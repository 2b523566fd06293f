// Which row of x a block quantizes. The only reader of blockIdx of the kernel quantize_input.
// Run by every thread.
// Reads -> writes: the grid's coordinates -> registers.
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

// The kernel's arguments. x has rows of k numbers, or of 2k where two halves make one; strides count
// elements.
struct InputCall {
  const void* x;
  const int* permutation;  // or null
  void* codes;
  float* scales;  // [groups][scales_pitch]
  i64 x_row_stride;
  i64 codes_row_bytes;
  i64 scales_pitch;
  int k;
  int aligned;         // 1: rows, and their halves, begin at 16 whole bytes
  const float* fixed;  // the scale of all rows, where it is given
};

__device__ __forceinline__ i64 input_row() { return blockIdx.x; }

}  // namespace humming
