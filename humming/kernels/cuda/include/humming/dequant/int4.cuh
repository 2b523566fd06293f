// 4-bit codes -> the A fragment of one m16n8k16 step. Bit tricks on codes live here.
// Run by one thread, on its own word of a 16x64 tile.
// Reads -> writes: registers; nibble i of each half word -> register a[i], low half = even k
//   (quantize/layout: cuda_n16k64).
// Source: a code OR-ed into the mantissa of 2^7 (bf16) or 2^10 (fp16) is that power plus the code;
//   see Kim et al., arXiv:2211.10017.
#pragma once
#include "humming/dequant/activation.cuh"

namespace humming {

// What `raw` leaves in a register is bias + factor * code, with `factor` and `bias` per half of the
// tile's rows (g, g + 8). `negative_bias` is the A fragment whose product with x takes the bias
// away; `high_rows_scale` undoes the factor of rows 8..15. `exact` leaves the codes themselves;
// `scaled` leaves code * scale, rounded once, for a pair of scales of rows g and of rows g + 8.
template <class Activation>
struct Int4;

// Of both types, twice: a product plus this keeps its sign.
constexpr u32 negative_zero = 0x80008000u;

template <>
struct Int4<Bf16> {
  static constexpr float high_rows_scale = 1.0f;
  static constexpr u32 negative_bias_low = 0xC308C308u;  // -136: 2^7 and the code's own offset of 8
  static constexpr u32 negative_bias_high = 0xC308C308u;

  static __device__ __forceinline__ void raw(u32 (&a)[4], u32 word) {
    constexpr u32 mask = 0x000F000Fu, base = 0x43004300u;
    a[0] = ptx::and_or(word, mask, base);
    a[1] = ptx::and_or(word >> 4, mask, base);
    a[2] = ptx::and_or(word >> 8, mask, base);
    a[3] = ptx::and_or(word >> 12, mask, base);
  }
  static __device__ __forceinline__ void exact(u32 (&a)[4], u32 word) {
    raw(a, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::fma_bf16x2(a[i], 0x3F803F80u, 0xC308C308u);
  }
  static __device__ __forceinline__ void scaled(u32 (&a)[4], u32 word, u32 low, u32 high) {
    exact(a, word);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = ptx::fma_bf16x2(a[i], i % 2 == 0 ? low : high, negative_zero);
  }
};

template <>
struct Int4<Fp16> {
  static constexpr float high_rows_scale = 0.0625f;
  static constexpr u32 negative_bias_low = 0xE408E408u;   // -1032: 2^10 and the offset of 8
  static constexpr u32 negative_bias_high = 0xE480E480u;  // -1152: 2^10 and 16 times the offset

  static __device__ __forceinline__ void raw(u32 (&a)[4], u32 word) {
    constexpr u32 low = 0x000F000Fu, high = 0x00F000F0u, base = 0x64006400u;
    u32 upper = word >> 8;
    a[0] = ptx::and_or(word, low, base);
    a[1] = ptx::and_or(word, high, base);
    a[2] = ptx::and_or(upper, low, base);
    a[3] = ptx::and_or(upper, high, base);
  }
  static __device__ __forceinline__ void exact(u32 (&a)[4], u32 word) {
    raw(a, word);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      a[i] = ptx::fma_f16x2(a[i], 0x3C003C00u, 0xE408E408u);          // 1 * a - 1032
      a[i + 1] = ptx::fma_f16x2(a[i + 1], 0x2C002C00u, 0xD480D480u);  // a / 16 - 72
    }
  }
  static __device__ __forceinline__ void scaled(u32 (&a)[4], u32 word, u32 low, u32 high) {
    exact(a, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::fma_f16x2(a[i], i % 2 == 0 ? low : high, negative_zero);
  }
};

}  // namespace humming
