// Where the bits of a lane's codes are: planes of 8, 4, 2 or 1 bits, and how one of them comes into
//   place. What the bits mean is integer.cuh and small_float.cuh.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers.
// Source: own; the map is written in quantize/layout_cuda.py (cuda_n16k64).
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

// A lane's words of one tile of `bits`-bit codes: plane after plane, the high bits first.
template <int bits>
struct CodeWords {
  u32 word[bits];
};

// The widths of planes are the powers of two that make up `bits`; `words` of one hold it.
template <int bits>
struct Planes {
  static_assert(1 <= bits && bits <= 8);
  static constexpr int first = bits == 8 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : 1;
  static constexpr int second = bits - first >= 2 ? 2 : bits - first;
  static constexpr int third = bits - first - second;
  static constexpr int count = (first > 0) + (second > 0) + (third > 0);

  static __device__ constexpr int width(int p) { return p == 0 ? first : p == 1 ? second : third; }
  // The code's bit that is the lowest of plane `p`.
  static __device__ constexpr int low_bit(int p) {
    return p == 0 ? bits - first : p == 1 ? third : 0;
  }
  // Where plane `p` has register `i` of k step `step`: word of the lane, lowest bit of either half.
  static __device__ constexpr int first_word(int p) {
    return p == 0 ? 0 : p == 1 ? first : first + second;
  }
  static __device__ constexpr int word(int p, int step, int i) {
    return first_word(p) + (4 * step + i) * width(p) / 16;
  }
  static __device__ constexpr int bit(int p, int step, int i) {
    if (width(p) == 1) return step % 2 * 8 + i / 2 * 4 + step / 2 * 2 + i % 2;
    return (4 * step + i) * width(p) % 16;
  }
};

// `word` with what is at bit `from` of each half at bit `to`; other bits are of no use.
template <int from, int to>
__device__ __forceinline__ u32 moved(u32 word) {
  if constexpr (to >= from) {
    return word << (to - from);
  } else {
    return word >> (from - to);
  }
}

// Codes with `one<step, i>(words)`, the register `i` of k step `step`: all four of a step, which is
// a constant once the caller's loop is unrolled.
template <class Codes, int step>
__device__ __forceinline__ void registers_of_step(u32 (&a)[4], const u32 (&words)[Codes::bits]) {
  a[0] = Codes::template one<step, 0>(words);
  a[1] = Codes::template one<step, 1>(words);
  a[2] = Codes::template one<step, 2>(words);
  a[3] = Codes::template one<step, 3>(words);
}
template <class Codes>
__device__ __forceinline__ void registers(u32 (&a)[4], const u32 (&words)[Codes::bits], int step) {
  if (step == 0) registers_of_step<Codes, 0>(a, words);
  if (step == 1) registers_of_step<Codes, 1>(a, words);
  if (step == 2) registers_of_step<Codes, 2>(a, words);
  if (step == 3) registers_of_step<Codes, 3>(a, words);
}

// `field` in both halves of a word.
__device__ constexpr u32 both(u32 field) { return field | field << 16; }

}  // namespace humming
