// The 16-lane vocabulary in portable vector extensions (GCC and Clang): one instruction a
//   function, no loops over data.
// Run by every thread.
// Reads and writes 16 consecutive elements at an address of any alignment.
// Technique: four native 16-byte vectors a Vec, as compilers lower wider ones through memory;
//   16-bit floats by bit arithmetic on the fp32 encoding.
#pragma once

#include <cstring>

#include "humming/static_for.h"

namespace humming {

using Float4 = float __attribute__((vector_size(16)));
using Uint4 = uint32_t __attribute__((vector_size(16)));
using Signed4 = int32_t __attribute__((vector_size(16)));

struct Vec {
  Float4 part[4];
};
struct Codes {
  Uint4 part[4];
};

constexpr int kMaxAccumulators = 6;

template <class F>
HUMMING_INLINE Vec each_part(F&& part) {
  return {{part(0), part(1), part(2), part(3)}};
}

template <class To, class From>
HUMMING_INLINE To load_part(const From* from) {
  To to;
  std::memcpy(&to, from, sizeof(To));
  return to;
}
// By parts: a copy of all 64 bytes would go through the stack.
HUMMING_INLINE Vec load(const float* from) {
  return each_part([&](int i) { return load_part<Float4>(from + 4 * i); });
}
HUMMING_INLINE void store(float* to, Vec v) { std::memcpy(to, &v, sizeof(v)); }
HUMMING_INLINE Codes load_codes(const uint32_t* from) {
  return {{load_part<Uint4>(from), load_part<Uint4>(from + 4), load_part<Uint4>(from + 8),
           load_part<Uint4>(from + 12)}};
}
HUMMING_INLINE Vec broadcast(float value) {
  return each_part([&](int) { return Float4{value, value, value, value}; });
}
HUMMING_INLINE Vec zero() { return broadcast(0.0f); }
HUMMING_INLINE Vec add(Vec a, Vec b) {
  return each_part([&](int i) { return a.part[i] + b.part[i]; });
}
HUMMING_INLINE Vec sub(Vec a, Vec b) {
  return each_part([&](int i) { return a.part[i] - b.part[i]; });
}
HUMMING_INLINE Vec mul(Vec a, Vec b) {
  return each_part([&](int i) { return a.part[i] * b.part[i]; });
}
// a * b + c, rounded twice here and once where the machine has a fused instruction.
HUMMING_INLINE Vec fma(Vec a, Vec b, Vec c) { return add(mul(a, b), c); }

template <int bits>
HUMMING_INLINE Codes shift_right(Codes a) {
  return {{a.part[0] >> bits, a.part[1] >> bits, a.part[2] >> bits, a.part[3] >> bits}};
}
template <int bits>
HUMMING_INLINE Codes shift_left(Codes a) {
  return {{a.part[0] << bits, a.part[1] << bits, a.part[2] << bits, a.part[3] << bits}};
}
template <class F>
HUMMING_INLINE Codes each_codes_part(F&& part) {
  return {{part(0), part(1), part(2), part(3)}};
}
// (a & mask) ^ flip
HUMMING_INLINE Codes and_xor(Codes a, uint32_t mask, uint32_t flip) {
  const Uint4 masks{mask, mask, mask, mask}, flips{flip, flip, flip, flip};
  return each_codes_part([&](int i) { return (a.part[i] & masks) ^ flips; });
}
// (a & mask) | b
HUMMING_INLINE Codes and_or(Codes a, uint32_t mask, Codes b) {
  const Uint4 masks{mask, mask, mask, mask};
  return each_codes_part([&](int i) { return (a.part[i] & masks) | b.part[i]; });
}
HUMMING_INLINE Codes add_each(Codes a, uint32_t b) {
  return each_codes_part([&](int i) { return a.part[i] + b; });
}
// bits | (a > limit ? extra : 0), for a and limit below 2^31
HUMMING_INLINE Codes or_where_above(Codes bits, Codes a, uint32_t limit, uint32_t extra) {
  const Signed4 limits = Signed4{} + (int32_t)limit;
  return each_codes_part(
      [&](int i) { return bits.part[i] | ((Uint4)((Signed4)a.part[i] > limits) & extra); });
}
HUMMING_INLINE Vec as_float(Codes a) {
  return each_part([&](int i) { return (Float4)a.part[i]; });
}
HUMMING_INLINE Codes as_codes(Vec v) {
  return each_codes_part([&](int i) { return (Uint4)v.part[i]; });
}
// (a & mask) ^ flip, read as fp32
HUMMING_INLINE Vec and_xor_as_float(Codes a, uint32_t mask, uint32_t flip) {
  return as_float(and_xor(a, mask, flip));
}
// The smaller of two numbers that are not NaN.
HUMMING_INLINE Vec minimum(Vec a, Vec b) {
  return each_part([&](int i) {
    const Uint4 less = (Uint4)(a.part[i] < b.part[i]);
    return (Float4)((less & (Uint4)a.part[i]) | (~less & (Uint4)b.part[i]));
  });
}

// Lanes as int32.
HUMMING_INLINE Codes zero_codes() { return {}; }
HUMMING_INLINE void store_codes(uint32_t* to, Codes a) { std::memcpy(to, &a, sizeof(a)); }
HUMMING_INLINE Codes add_codes(Codes a, Codes b) {
  return each_codes_part([&](int i) { return a.part[i] + b.part[i]; });
}
HUMMING_INLINE Vec to_float(Codes a) {
  return each_part([&](int i) { return __builtin_convertvector((Signed4)a.part[i], Float4); });
}
// sum + the four products of a lane's unsigned bytes with the signed bytes of `factor`
HUMMING_INLINE Codes add_byte_products(Codes sum, Codes bytes, uint32_t factor) {
  static_for<4>([&](auto i) {
    const int32_t signed_byte = (int8_t)(factor >> (8 * i));
    sum = each_codes_part([&](int part) {
      return sum.part[part] + ((bytes.part[part] >> (8 * i)) & 0xFFu) * (uint32_t)signed_byte;
    });
  });
  return sum;
}

// No 16-entry lookups here; the declarations let code that asks first be parsed.
constexpr bool kHasLookup = false;
Vec lookup(Codes lanes, const float (&table)[16]);
constexpr bool kHasPairLookup = false;
Codes lookup_pairs(Codes elements, const uint16_t (&table)[32]);
Codes lookup_pairs(Codes elements, const uint16_t (&table)[64]);
template <int bit>
Codes choose_by_bit(Codes elements, Codes set, Codes clear);
constexpr bool kHasSmallLookup = false;
Vec lookup_magnitude(Codes lanes, const float (&table)[8]);

HUMMING_INLINE Float4 widen_bf16(Uint4 bits) { return (Float4)(bits << 16); }

HUMMING_INLINE Float4 widen_fp16(Uint4 bits) {
  const Uint4 sign = (bits & 0x8000u) << 16, rest = bits & 0x7FFFu;
  const Uint4 special = (Uint4)(rest > 0x7BFFu), subnormal = (Uint4)(rest < 0x0400u);
  const Uint4 normal = (rest << 13) + ((127u - 15u) << 23) + (special & ((255u - 143u) << 23));
  // A subnormal is its mantissa times 2^-24: put it under 0.5's exponent and take 0.5 away.
  const Uint4 half = Uint4{} + 0x3F000000u;
  const Float4 small = (Float4)(half | rest) - (Float4)half;
  return (Float4)(sign | (subnormal & (Uint4)small) | (~subnormal & normal));
}

// Round to nearest even; a NaN stays a quiet NaN.
HUMMING_INLINE Uint4 narrow_bf16(Float4 v) {
  const Uint4 bits = (Uint4)v;
  const Uint4 nan = (Uint4)((bits & 0x7FFFFFFFu) > 0x7F800000u);
  const Uint4 rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return (nan & ((bits >> 16) | 0x40u)) | (~nan & rounded);
}

HUMMING_INLINE Uint4 narrow_fp16(Float4 v) {
  const Uint4 bits = (Uint4)v, sign = (bits >> 16) & 0x8000u, rest = bits & 0x7FFFFFFFu;
  const Uint4 nan = (Uint4)(rest > 0x7F800000u);
  const Uint4 overflow = (Uint4)(rest >= 0x477FF000u);  // 65520: rounds to infinity
  const Uint4 subnormal = (Uint4)(rest < 0x38800000u);  // 2^-14
  const Uint4 normal = (rest - ((127u - 15u) << 23) + 0xFFFu + ((rest >> 13) & 1u)) >> 13;
  // Adding 0.5 rounds a small magnitude to a multiple of 2^-24, as the machine rounds to even.
  const Float4 half = (Float4)(Uint4{} + 0x3F000000u);
  const Uint4 small = (Uint4)((Float4)rest + half) - 0x3F000000u;
  const Uint4 finite = (subnormal & small) | (~subnormal & normal);
  const Uint4 number = (overflow & 0x7C00u) | (~overflow & finite);
  return sign | (nan & 0x7E00u) | (~nan & number);
}

template <class F>
HUMMING_INLINE Vec load_16bit(const uint16_t* from, F&& widen) {
  return each_part([&](int i) {
    const uint16_t* p = from + 4 * i;
    return widen(Uint4{p[0], p[1], p[2], p[3]});
  });
}
template <class F>
HUMMING_INLINE void store_16bit(uint16_t* to, Vec v, F&& narrow) {
  static_for<16>([&](auto i) { to[i] = (uint16_t)narrow(v.part[i / 4])[i % 4]; });
}

HUMMING_INLINE Vec load_bf16(const uint16_t* from) { return load_16bit(from, widen_bf16); }
HUMMING_INLINE Vec load_fp16(const uint16_t* from) { return load_16bit(from, widen_fp16); }
HUMMING_INLINE void store_bf16(uint16_t* to, Vec v) { store_16bit(to, v, narrow_bf16); }
HUMMING_INLINE void store_fp16(uint16_t* to, Vec v) { store_16bit(to, v, narrow_fp16); }

}  // namespace humming
