// Codes of 4 bits of one k32 step -> the A fragment of bytes that a warpgroup multiplies, with the
//   scale of the step's group on where it is a power of two.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers; low nibbles of word 2u + r -> a[r], high nibbles -> a[r + 2]
//   (quantize/layout_cuda_a8.py).
// Source: own. Bytes 0 to 15 are linear as e4m3: code times 2^-9. A table of the eight magnitudes of
//   e2m1 as e5m2, its exponents moved by the group's scale, is two registers that byte permutation
//   looks up; e5m2 has room for 27 binades below a row's largest group.
#pragma once
#include "humming/ptx/bytes.cuh"

namespace humming {

// Types of bytes that tensor cores multiply.
struct Int8;
struct E4m3;
struct E5m2;

__device__ constexpr u32 four_bytes(u32 byte) { return byte * 0x01010101u; }

// Codes that are such bytes already, which nobody takes apart.
struct ByteRows {
  static constexpr int lift = 0;
  static constexpr bool scaled = false, has_raw = false;
};

// Integers as e4m3: value times 2^-9. Stored as code + 8: those below 8 are 8 - code, negative.
struct Int4AsE4m3 {
  using Type = E4m3;
  static constexpr int lift = -9;
  static constexpr bool scaled = false, has_raw = true;

  static __device__ __forceinline__ u32 of(u32 nibbles, u32 signs) {
    const u32 negative = ~signs & four_bytes(1);  // a one in each negative byte
    const u32 flip = four_bytes(8) - negative;
    return (nibbles & four_bytes(15) ^ flip) + negative * 0x81u;
  }
  static __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[4], int step) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const u32 word = words[2 * step + r];
      a[r] = of(word, word >> 3);
      a[r + 2] = of(word >> 4, word >> 7);
    }
  }

  // Without that: code + 8, from which a product with `bias` takes the 8 away.
  static constexpr u32 bias = four_bytes(0x88);
  static __device__ __forceinline__ void raw(u32 (&a)[4], const u32 (&words)[4], int step) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const u32 word = words[2 * step + r];
      a[r] = word & four_bytes(15);
      a[r + 2] = word >> 4 & four_bytes(15);
    }
  }
};

// Integers as bytes: 16 times the code.
struct Int4AsInt8 {
  using Type = Int8;
  static constexpr int lift = 4;
  static constexpr bool scaled = false, has_raw = false;

  static __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[4], int step) {
    constexpr u32 high = four_bytes(0xF0), offset = four_bytes(0x80);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const u32 word = words[2 * step + r];
      a[r] = word << 4 & high ^ offset;
      a[r + 2] = word & high ^ offset;
    }
  }
};

// e2m1 as e4m3: value times 2^-6.
struct Fp4AsE4m3 {
  using Type = E4m3;
  static constexpr int lift = -6;
  static constexpr bool scaled = false, has_raw = false;

  static __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[4], int step) {
    constexpr u32 sign = four_bytes(0x80), rest = four_bytes(0x1C);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const u32 word = words[2 * step + r];
      a[r] = word << 2 & rest | word << 4 & sign;
      a[r + 2] = word >> 2 & rest | word & sign;
    }
  }
};

// e2m1 with a power of two for a group of 32, at most 1, as e5m2: value times scale times 2^13. A
// table has the magnitudes for each exponent that a scale may have.
struct ScaledFp4 {
  using Type = E5m2;
  static constexpr int lift = 13;
  static constexpr bool scaled = true, has_raw = false;
  static constexpr int entries = 128, entry_bytes = 8;

  // The entry of scales whose bf16 has the exponent `e`: 127 of scale 1, and none below 0.
  static __device__ __forceinline__ Words2 entry(u32 e) {
    const u32 exponent = e > 100 ? (e - 100) * 4 : 0;  // in place, of one half of a unit
    return {exponent * 0x01010100u + 0x06040000u, exponent * 0x01010101u + 0x0E0C0A08u};
  }
  // Where the entries of rows g and g + 8 lie, by the pair of their scales; `table` begins at a
  // multiple of all its bytes.
  static __device__ __forceinline__ u32 place(u32 table, u32 scales, int half) {
    return (half ? scales >> 20 : scales >> 4 & 0x7F8) | table;
  }
  static __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[4], int step,
                                                  const Words2 (&magnitudes)[2]) {
    constexpr u32 sign = four_bytes(0x80);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const u32 low = magnitudes[r].word[0], high = magnitudes[r].word[1];
      const u32 word = words[2 * step + r], places = word & 0x77777777u;
      // Bytes of registers r and r + 2 in turn, as their nibbles are.
      const u32 first = ptx::pick_bytes(low, high, places);
      const u32 second = ptx::pick_bytes(low, high, places >> 16);
      a[r] = (word << 4 & sign) | ptx::pick_bytes(first, second, 0x6420);
      a[r + 2] = (word & sign) | ptx::pick_bytes(first, second, 0x7531);
    }
  }
};

}  // namespace humming
