// Codes of 1 to 7 bits of one k32 step -> the A fragment of bytes that tensor cores multiply. Bit
//   tricks on codes live here.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers; fields as in quantize/layout_cuda_a8.py -> register a[i], byte j.
// Source: own. A code in the high bits of a byte with its sign bit flipped is the code times a power
//   of two as int8; bytes 0 to 16 of e4m3 (0 to 8 of e5m2) are the numbers 0 to 16 times its least
//   one; a small float's bits are those of a larger one under another bias.
#pragma once
#include "humming/dequant/byte_carrier.cuh"
#include "humming/dequant/planes.cuh"

namespace humming {

// `byte` in each byte of a word.
__device__ constexpr u32 in_bytes(u32 byte) { return byte * 0x01010101u; }

// Where plane `p` of `bits`-bit codes has field e of a step: word of the lane, lowest bit of a byte.
template <int bits>
struct BytePlanes {
  using At = Planes<bits>;
  static __device__ constexpr int field(int step, int i) { return 4 * step + 2 * (i % 2) + i / 2; }
  static __device__ constexpr int word(int p, int step, int i) {
    return At::first_word(p) + field(step, i) * At::width(p) / 8;
  }
  static __device__ constexpr int bit(int p, int step, int i) {
    return field(step, i) * At::width(p) % 8;
  }

  // The stored codes of register i with their lowest bit at bit `at` of each byte.
  template <int step, int i, int at, int plane = 0>
  static __device__ __forceinline__ u32 gathered(const u32 (&words)[bits]) {
    constexpr int to = at + At::low_bit(plane);
    constexpr u32 mask = in_bytes(((1u << At::width(plane)) - 1) << to);
    const u32 part = moved<bit(plane, step, i), to>(words[word(plane, step, i)]) & mask;
    if constexpr (plane + 1 == At::count) {
      return part;
    } else {
      return part | gathered<step, i, at, plane + 1>(words);
    }
  }
};

// What a group's zero points are to the codes: the same byte four times, of rows g and g + 8.
struct ByteZeros {
  u32 row[2];
};

// Integers, stored as code + 2^(bits - 1), or unsigned with zero points (`with_zeros`), as `Carrier`.
// Values come times 2^lift.
template <int bits_, class Carrier, bool with_zeros>
struct ByteIntegers {
  static constexpr int bits = bits_, center = 1 << (bits - 1);
  static constexpr int lift = Carrier::is_integer ? (with_zeros ? 0 : 8 - bits) : Carrier::least;
  using At = BytePlanes<bits>;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits], const ByteZeros& zeros) {
    constexpr u32 sign = in_bytes(0x80);
    if constexpr (Carrier::is_integer && !with_zeros) {
      return At::template gathered<step, i, 8 - bits>(words) ^ sign;
    } else {
      const u32 off = with_zeros ? zeros.row[i % 2] : in_bytes(center);
      const u32 value = ((At::template gathered<step, i, 0>(words) | sign) - off) ^ sign;
      if constexpr (Carrier::is_integer) return value;
      const u32 negative = value >> 7 & in_bytes(1);
      return (value ^ negative * 0xFFu) + negative * 0x81u;
    }
  }
};

// Floats of `bits` bits in the places of a larger one, `Carrier`.
template <int exponent_bits, int mantissa_bits, class Carrier>
struct ByteFloats {
  static constexpr int bits = 1 + exponent_bits + mantissa_bits;
  static constexpr int lift = ((1 << (exponent_bits - 1)) - 1) - Carrier::exponent_bias;
  static constexpr int up = Carrier::mantissa_bits - mantissa_bits;
  static_assert(exponent_bits <= Carrier::exponent_bits && up >= 0);
  using At = BytePlanes<bits>;
  using In = Planes<bits>;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits], const ByteZeros&) {
    constexpr int sign_bit = At::bit(0, step, i) + In::width(0) - 1;
    const u32 sign = moved<sign_bit, 7>(words[At::word(0, step, i)]) & in_bytes(0x80);
    return sign | rest<step, i, 0>(words);
  }

 private:
  template <int step, int i, int plane>
  static __device__ __forceinline__ u32 rest(const u32 (&words)[bits]) {
    if constexpr (plane == In::count) {
      return 0;
    } else {
      constexpr int width = In::width(plane) - (plane == 0);  // without the sign
      constexpr int to = up + In::low_bit(plane);
      constexpr u32 mask = in_bytes(((1u << width) - 1) << to);
      const u32 part = moved<At::bit(plane, step, i), to>(words[At::word(plane, step, i)]) & mask;
      return part | rest<step, i, plane + 1>(words);
    }
  }
};

// Codes of 8 bits are the carrier's already, and lie in rows.
struct RowCodes {
  static constexpr int bits = 8, lift = 0;
};

// Integers of 4 bits for products of those: a word is a register, in two's complement.
struct NibbleCodes {
  static constexpr int bits = 4, lift = 0;

  static __device__ __forceinline__ void whole(u32 (&a)[4], const u32 (&words)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = words[i] ^ 0x88888888u;
  }
};

// fp4e2m1 for products of those. Where groups have 16 columns, lanes t and t + 2 of a quad exchange
// codes, so that a lane has those of one group: of the first of two in the lower lanes.
template <int group>
struct Fp4Codes {
  static constexpr int bits = 4, lift = 0;

  static __device__ __forceinline__ void whole(u32 (&a)[4], const u32 (&words)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = words[i];
      if constexpr (group == 16) {
        constexpr u32 low = in_bytes(0x0F);
        const u32 other = __shfl_xor_sync(0xFFFFFFFFu, words[i], 2);
        a[i] = threadIdx.x % 4 < 2 ? (words[i] & low) | (other & low) << 4
                                   : (words[i] & ~low) | (other >> 4 & low);
      }
    }
  }
};

// All four registers of step 0 or 1, which is a constant once the caller's loop is unrolled.
template <class Codes>
__device__ __forceinline__ void byte_fragment(u32 (&a)[4], const u32 (&words)[Codes::bits],
                                              int step, const ByteZeros& zeros) {
  if (step == 0) {
    a[0] = Codes::template one<0, 0>(words, zeros), a[1] = Codes::template one<0, 1>(words, zeros);
    a[2] = Codes::template one<0, 2>(words, zeros), a[3] = Codes::template one<0, 3>(words, zeros);
  } else {
    a[0] = Codes::template one<1, 0>(words, zeros), a[1] = Codes::template one<1, 1>(words, zeros);
    a[2] = Codes::template one<1, 2>(words, zeros), a[3] = Codes::template one<1, 3>(words, zeros);
  }
}

}  // namespace humming
