// The vocabulary of avx512.h, and products of bf16 pairs (AVX512_BF16): one instruction a function.
// Run by every thread.
// Reads and writes 16 lanes; a lane of Pairs is two bf16 numbers.
// Source: Intel Intrinsics Guide.
#pragma once

#include "humming/isa/avx512.h"

namespace humming {

HUMMING_INLINE Pairs load_pairs(const uint32_t* from) { return _mm512_loadu_si512(from); }
HUMMING_INLINE void store_pairs(uint32_t* to, Pairs v) { _mm512_storeu_si512(to, v); }
HUMMING_INLINE Pairs broadcast_pair(uint32_t pair) { return _mm512_set1_epi32((int)pair); }

// sum + both products of each lane, in fp32 to nearest even. Takes denormal inputs as zero, and
// makes a denormal sum zero.
HUMMING_INLINE Vec add_products(Vec sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

HUMMING_INLINE Codes sub_elements(Codes a, Codes b) { return _mm512_sub_epi16(a, b); }
// The whole number of each lane in both of its halves.
HUMMING_INLINE Codes both_halves(Vec whole) {
  const __m512i low = _mm512_and_si512(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(0xFFFF));
  return _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
}
// Pairs of the upper halves of two fp32 numbers: exact where those are bf16 numbers.
HUMMING_INLINE Pairs pair_of(Vec first, Vec second) {
  return and_or(as_codes(second), 0xFFFF0000u, _mm512_srli_epi32(as_codes(first), 16));
}
// 32 consecutive 16-bit elements, put into the order that `order` lists.
HUMMING_INLINE Pairs load_in_order(const uint16_t* from, const uint16_t (&order)[32]) {
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), _mm512_loadu_si512(from));
}

}  // namespace humming
