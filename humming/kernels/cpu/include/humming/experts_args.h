// What crosses the C boundary for the experts of a mixture: humming/jit/experts_load.py packs the
//   same fields.
// Run by the calling thread.
// Reads and writes nothing itself.
// Technique: every field has 8 bytes, so that there is no padding to agree on.
#pragma once

#include "humming/args.h"

namespace humming {

// How rows of x are given to experts.
enum Grouping : int64_t { kIndexed = 0, kContiguous = 1, kMasked = 2 };

struct ExpertsArgs {
  const void* x;               // rows of the activation type, row stride ldx
  const uint32_t* codes;       // of all experts, one packed weight after another
  const float* scales;         // the same, or null
  const float* zero_points;    // the same, or null
  const float* row_scales;     // the same, or null
  const int32_t* permutation;  // [experts][k] or null
  const float* bias;           // [experts][n] or null
  void* out;                   // [rows][n] of the output type, row stride ldo
  // Indexed: the expert of each row of out, rows of others are set to zero. Contiguous: [experts +
  // 1], where each expert's rows begin. Masked: [experts], how many of its `capacity` rows count.
  const int32_t* groups;
  void* workspace;
  ParallelFor parallel_for;
  int64_t workspace_bytes;
  int64_t grouping;
  int64_t rows;       // of out
  int64_t rows_of_x;  // rows of out that follow each other and share one row of x
  int64_t experts;    // whose weights are here
  int64_t first;      // the id of the first one
  int64_t capacity;   // masked: rows an expert
  int64_t n, k, ldx, ldo;
  int64_t threads;
};

}  // namespace humming
