// The 16-lane vocabulary in AVX2, FMA and F16C: one instruction a function (twice: a Vec is two
//   registers).
// Run by every thread.
// Reads and writes 16 consecutive elements at an address of any alignment.
// Source: Intel Intrinsics Guide.
#pragma once

#include <immintrin.h>

#include "humming/static_for.h"

namespace humming {

struct Vec {
  __m256 low, high;
};
struct Codes {
  __m256i low, high;
};

constexpr int kMaxAccumulators = 6;

HUMMING_INLINE Vec load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
HUMMING_INLINE void store(float* to, Vec v) {
  _mm256_storeu_ps(to, v.low);
  _mm256_storeu_ps(to + 8, v.high);
}
HUMMING_INLINE Codes load_codes(const uint32_t* from) {
  return {_mm256_loadu_si256((const __m256i*)from), _mm256_loadu_si256((const __m256i*)(from + 8))};
}
HUMMING_INLINE Vec broadcast(float value) {
  const __m256 all = _mm256_set1_ps(value);
  return {all, all};
}
HUMMING_INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HUMMING_INLINE Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
HUMMING_INLINE Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
HUMMING_INLINE Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
// a * b + c, rounded once
HUMMING_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

template <int bits>
HUMMING_INLINE Codes shift_right(Codes a) {
  return {_mm256_srli_epi32(a.low, bits), _mm256_srli_epi32(a.high, bits)};
}
template <int bits>
HUMMING_INLINE Codes shift_left(Codes a) {
  return {_mm256_slli_epi32(a.low, bits), _mm256_slli_epi32(a.high, bits)};
}
// (a & mask) ^ flip
HUMMING_INLINE Codes and_xor(Codes a, uint32_t mask, uint32_t flip) {
  const __m256i masks = _mm256_set1_epi32((int)mask), flips = _mm256_set1_epi32((int)flip);
  return {_mm256_xor_si256(_mm256_and_si256(a.low, masks), flips),
          _mm256_xor_si256(_mm256_and_si256(a.high, masks), flips)};
}
// (a & mask) | b
HUMMING_INLINE Codes and_or(Codes a, uint32_t mask, Codes b) {
  const __m256i masks = _mm256_set1_epi32((int)mask);
  return {_mm256_or_si256(_mm256_and_si256(a.low, masks), b.low),
          _mm256_or_si256(_mm256_and_si256(a.high, masks), b.high)};
}
HUMMING_INLINE Codes add_each(Codes a, uint32_t b) {
  const __m256i all = _mm256_set1_epi32((int)b);
  return {_mm256_add_epi32(a.low, all), _mm256_add_epi32(a.high, all)};
}
// bits | (a > limit ? extra : 0), for a and limit below 2^31
HUMMING_INLINE Codes or_where_above(Codes bits, Codes a, uint32_t limit, uint32_t extra) {
  const __m256i limits = _mm256_set1_epi32((int)limit), extras = _mm256_set1_epi32((int)extra);
  const __m256i low = _mm256_and_si256(_mm256_cmpgt_epi32(a.low, limits), extras);
  const __m256i high = _mm256_and_si256(_mm256_cmpgt_epi32(a.high, limits), extras);
  return {_mm256_or_si256(bits.low, low), _mm256_or_si256(bits.high, high)};
}
HUMMING_INLINE Vec as_float(Codes a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
HUMMING_INLINE Codes as_codes(Vec v) {
  return {_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)};
}
// (a & mask) ^ flip, read as fp32
HUMMING_INLINE Vec and_xor_as_float(Codes a, uint32_t mask, uint32_t flip) {
  return as_float(and_xor(a, mask, flip));
}
// The smaller of two numbers that are not NaN.
HUMMING_INLINE Vec minimum(Vec a, Vec b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

// Lanes as int32.
HUMMING_INLINE Codes zero_codes() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
HUMMING_INLINE void store_codes(uint32_t* to, Codes a) {
  _mm256_storeu_si256((__m256i*)to, a.low);
  _mm256_storeu_si256((__m256i*)(to + 8), a.high);
}
HUMMING_INLINE Codes add_codes(Codes a, Codes b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
HUMMING_INLINE Vec to_float(Codes a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
#if !defined(HUMMING_BYTE_PRODUCTS)
HUMMING_INLINE __m256i add_byte_products(__m256i sum, __m256i bytes, __m256i factors) {
  const __m256i even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xFF));
  const __m256i odd = _mm256_srli_epi16(bytes, 8);
  const __m256i even_factors = _mm256_srai_epi16(_mm256_slli_epi16(factors, 8), 8);
  const __m256i odd_factors = _mm256_srai_epi16(factors, 8);
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, even_factors));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, odd_factors));
}
#endif
// sum + the four products of a lane's unsigned bytes with the signed bytes of `factor`
HUMMING_INLINE Codes add_byte_products(Codes sum, Codes bytes, uint32_t factor) {
  const __m256i factors = _mm256_set1_epi32((int)factor);
  return {add_byte_products(sum.low, bytes.low, factors),
          add_byte_products(sum.high, bytes.high, factors)};
}

// No 16-entry lookups here; the declarations let code that asks first be parsed.
constexpr bool kHasLookup = false;
Vec lookup(Codes lanes, const float (&table)[16]);
constexpr bool kHasPairLookup = false;
Codes lookup_pairs(Codes elements, const uint16_t (&table)[32]);
Codes lookup_pairs(Codes elements, const uint16_t (&table)[64]);
template <int bit>
Codes choose_by_bit(Codes elements, Codes set, Codes clear);
// table[lane % 8] for each lane.
constexpr bool kHasSmallLookup = true;
HUMMING_INLINE Vec lookup_magnitude(Codes lanes, const float (&table)[8]) {
  const __m256 entries = _mm256_loadu_ps(table);
  return {_mm256_permutevar8x32_ps(entries, lanes.low),
          _mm256_permutevar8x32_ps(entries, lanes.high)};
}

HUMMING_INLINE __m128i load_half(const uint16_t* from) {
  return _mm_loadu_si128((const __m128i*)from);
}
HUMMING_INLINE __m256 widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
// Round to nearest even; a NaN stays a quiet NaN.
HUMMING_INLINE __m128i narrow_bf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i even = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i bump = _mm256_add_epi32(even, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bump), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

HUMMING_INLINE Vec load_bf16(const uint16_t* from) {
  return {widen_bf16(load_half(from)), widen_bf16(load_half(from + 8))};
}
HUMMING_INLINE Vec load_fp16(const uint16_t* from) {
  return {_mm256_cvtph_ps(load_half(from)), _mm256_cvtph_ps(load_half(from + 8))};
}
HUMMING_INLINE void store_bf16(uint16_t* to, Vec v) {
  _mm_storeu_si128((__m128i*)to, narrow_bf16(v.low));
  _mm_storeu_si128((__m128i*)(to + 8), narrow_bf16(v.high));
}
HUMMING_INLINE void store_fp16(uint16_t* to, Vec v) {
  _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)(to + 8), _mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace humming
