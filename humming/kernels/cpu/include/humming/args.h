// What crosses the C boundary: the arguments of a kernel and its status. humming/jit/load.py
//   packs the same fields.
// Run by the calling thread.
// Reads and writes nothing itself.
// Technique: every field has 8 bytes, so that there is no padding to agree on.
#pragma once

#include "humming/scheduler/parallel.h"

namespace humming {

struct GemmArgs {
  const void* x;               // [m][k] of the activation type, row stride ldx
  const uint32_t* codes;       // layout cpu_n16k8
  const float* scales;         // layout cpu_n16k8; null where all scales are a row's
  const float* zero_points;    // as scales, or null
  const float* row_scales;     // [panels][16] or null
  const int32_t* permutation;  // [k] or null
  const float* bias;           // [n] or null
  void* out;                   // [m][n] of the output type, row stride ldo
  void* workspace;  // workspace_bytes, any alignment; contents do not matter before or after
  ParallelFor parallel_for;  // not called where threads == 1
  int64_t workspace_bytes;
  int64_t m, n, k, ldx, ldo;
  int64_t threads;
};

enum Status : int32_t { kOk = 0, kBadShape = 1, kWorkspaceTooSmall = 2, kNullPointer = 3 };

}  // namespace humming
