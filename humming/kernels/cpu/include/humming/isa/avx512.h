// The 16-lane vocabulary in AVX-512 (F, BW, DQ, VL): one instruction a function.
// Run by every thread.
// Reads and writes 16 consecutive elements at an address of any alignment.
// Source: Intel Intrinsics Guide.
#pragma once

#include <immintrin.h>

#include "humming/static_for.h"

namespace humming {

using Vec = __m512;
using Codes = __m512i;

constexpr int kMaxAccumulators = 28;

HUMMING_INLINE Vec load(const float* from) { return _mm512_loadu_ps(from); }
HUMMING_INLINE void store(float* to, Vec v) { _mm512_storeu_ps(to, v); }
HUMMING_INLINE Codes load_codes(const uint32_t* from) { return _mm512_loadu_si512(from); }
HUMMING_INLINE Vec broadcast(float value) { return _mm512_set1_ps(value); }
HUMMING_INLINE Vec zero() { return _mm512_setzero_ps(); }
HUMMING_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
HUMMING_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
HUMMING_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
// a * b + c, rounded once
HUMMING_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

template <int bits>
HUMMING_INLINE Codes shift_right(Codes a) {
  return _mm512_srli_epi32(a, bits);
}
template <int bits>
HUMMING_INLINE Codes shift_left(Codes a) {
  return _mm512_slli_epi32(a, bits);
}
// (a & mask) ^ flip
HUMMING_INLINE Codes and_xor(Codes a, uint32_t mask, uint32_t flip) {
  constexpr int kAndXor = 0x6A;  // truth table of (a & b) ^ c
  return _mm512_ternarylogic_epi32(a, _mm512_set1_epi32((int)mask), _mm512_set1_epi32((int)flip),
                                   kAndXor);
}
// (a & mask) | b
HUMMING_INLINE Codes and_or(Codes a, uint32_t mask, Codes b) {
  constexpr int kAndOr = 0xEA;  // truth table of (a & b) | c
  return _mm512_ternarylogic_epi32(a, _mm512_set1_epi32((int)mask), b, kAndOr);
}
HUMMING_INLINE Codes add_each(Codes a, uint32_t b) {
  return _mm512_add_epi32(a, _mm512_set1_epi32((int)b));
}
// bits | (a > limit ? extra : 0), for a and limit below 2^31
HUMMING_INLINE Codes or_where_above(Codes bits, Codes a, uint32_t limit, uint32_t extra) {
  const __mmask16 above = _mm512_cmpgt_epi32_mask(a, _mm512_set1_epi32((int)limit));
  return _mm512_mask_or_epi32(bits, above, bits, _mm512_set1_epi32((int)extra));
}
HUMMING_INLINE Vec as_float(Codes a) { return _mm512_castsi512_ps(a); }
HUMMING_INLINE Codes as_codes(Vec v) { return _mm512_castps_si512(v); }
// (a & mask) ^ flip, read as fp32
HUMMING_INLINE Vec and_xor_as_float(Codes a, uint32_t mask, uint32_t flip) {
  return as_float(and_xor(a, mask, flip));
}
// The smaller of two numbers that are not NaN.
HUMMING_INLINE Vec minimum(Vec a, Vec b) { return _mm512_min_ps(a, b); }

// Lanes as int32.
HUMMING_INLINE Codes zero_codes() { return _mm512_setzero_si512(); }
HUMMING_INLINE void store_codes(uint32_t* to, Codes a) { _mm512_storeu_si512(to, a); }
HUMMING_INLINE Codes add_codes(Codes a, Codes b) { return _mm512_add_epi32(a, b); }
HUMMING_INLINE Vec to_float(Codes a) { return _mm512_cvtepi32_ps(a); }
#if !defined(HUMMING_BYTE_PRODUCTS)
// sum + the four products of a lane's unsigned bytes with the signed bytes of `factor`
HUMMING_INLINE Codes add_byte_products(Codes sum, Codes bytes, uint32_t factor) {
  const __m512i factors = _mm512_set1_epi32((int)factor);
  const __m512i even = _mm512_and_si512(bytes, _mm512_set1_epi16(0xFF));
  const __m512i odd = _mm512_srli_epi16(bytes, 8);
  const __m512i even_factors = _mm512_srai_epi16(_mm512_slli_epi16(factors, 8), 8);
  const __m512i odd_factors = _mm512_srai_epi16(factors, 8);
  sum = _mm512_add_epi32(sum, _mm512_madd_epi16(even, even_factors));
  return _mm512_add_epi32(sum, _mm512_madd_epi16(odd, odd_factors));
}
#endif

// table[lane % 16] for each lane: a lane's low 4 bits pick, the others do not matter.
constexpr bool kHasLookup = true;
constexpr bool kHasSmallLookup = false;  // the other one does it all
Vec lookup_magnitude(Codes lanes, const float (&table)[8]);
HUMMING_INLINE Vec lookup(Codes lanes, const float (&table)[16]) {
  return _mm512_permutexvar_ps(lanes, _mm512_loadu_ps(table));
}

using Pairs = __m512i;
constexpr bool kHasPairLookup = true;
// table[i % 32] for each of 32 16-bit elements i: their low 5 bits pick, the others do not matter.
HUMMING_INLINE Pairs lookup_pairs(Codes elements, const uint16_t (&table)[32]) {
  return _mm512_permutexvar_epi16(elements, _mm512_loadu_si512(table));
}
// The same of 64 entries: the low 6 bits pick.
HUMMING_INLINE Pairs lookup_pairs(Codes elements, const uint16_t (&table)[64]) {
  return _mm512_permutex2var_epi16(_mm512_loadu_si512(table), elements,
                                   _mm512_loadu_si512(table + 32));
}
// For each 16-bit element: `set` where bit `bit` of `elements` is set, else `clear`.
template <int bit>
HUMMING_INLINE Pairs choose_by_bit(Codes elements, Pairs set, Pairs clear) {
  return _mm512_mask_mov_epi16(clear, _mm512_test_epi16_mask(elements, _mm512_set1_epi16(1 << bit)),
                               set);
}

HUMMING_INLINE Vec load_bf16(const uint16_t* from) {
  const __m256i bits = _mm256_loadu_si256((const __m256i*)from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
HUMMING_INLINE Vec load_fp16(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
}
// Round to nearest even; a NaN stays a quiet NaN.
HUMMING_INLINE void store_bf16(uint16_t* to, Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i even = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i bump = _mm512_add_epi32(even, _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bump), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i words = _mm512_mask_mov_epi32(rounded, nan, quiet);
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtepi32_epi16(words));
}
HUMMING_INLINE void store_fp16(uint16_t* to, Vec v) {
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace humming
