// 4-bit codes -> the A fragment of one m16n8k16 step. Bit tricks on codes live here.
// Run by one thread, on its own word of a 16x64 tile.
// Reads -> writes: registers; nibble i of each half word -> register a[i], low half = even k
//   (quantize/layout: cuda_n16k64).
// Source: a code OR-ed into the mantissa of a power of two is that power plus the code; see Kim et
//   al., arXiv:2211.10017. The power is the least that few shifts allow, as the product with the
//   bias is a sum that the codes' own must stand out of.
#pragma once
#include "humming/dequant/activation.cuh"

namespace humming {

// `raw` leaves bias + code in a register; `negative_bias` is the A fragment whose product with x
// takes the bias away. `exact` leaves the codes themselves; `scaled` leaves code * scale, rounded
// once, for a pair of scales of rows g and of rows g + 8.
template <class Activation>
struct Int4;

template <>
struct Int4<Bf16> {
  static constexpr u32 negative_bias = 0xC308C308u;  // -136: 2^7 and the code's own offset of 8
  static constexpr int bias = 136;

  static __device__ __forceinline__ void raw(u32 (&a)[4], u32 word) {
    constexpr u32 mask = 0x000F000Fu, base = 0x43004300u;
    a[0] = ptx::and_or(word, mask, base);
    a[1] = ptx::and_or(word >> 4, mask, base);
    a[2] = ptx::and_or(word >> 8, mask, base);
    a[3] = ptx::and_or(word >> 12, mask, base);
  }
  static __device__ __forceinline__ void exact(u32 (&a)[4], u32 word) {
    constexpr u32 one = 0x3F803F80u;
    raw(a, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::fma_bf16x2(a[i], one, negative_bias);
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
  static constexpr u32 negative_bias = 0xD480D480u;  // -72: 2^6 and the code's own offset of 8
  static constexpr int bias = 72;

  static __device__ __forceinline__ void raw(u32 (&a)[4], u32 word) {
    constexpr u32 mask = 0x00F000F0u, base = 0x54005400u;
    a[0] = ptx::and_or(word << 4, mask, base);
    a[1] = ptx::and_or(word, mask, base);
    a[2] = ptx::and_or(word >> 4, mask, base);
    a[3] = ptx::and_or(word >> 8, mask, base);
  }
  static __device__ __forceinline__ void exact(u32 (&a)[4], u32 word) {
    constexpr u32 one = 0x3C003C00u;
    raw(a, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::fma_f16x2(a[i], one, negative_bias);
  }
  static __device__ __forceinline__ void scaled(u32 (&a)[4], u32 word, u32 low, u32 high) {
    exact(a, word);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::fma_f16x2(a[i], i % 2 == 0 ? low : high, negative_zero);
  }
};

}  // namespace humming
