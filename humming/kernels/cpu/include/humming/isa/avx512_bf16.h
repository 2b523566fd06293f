// The vocabulary of avx512.h, and products of bf16 pairs (AVX512_BF16): one instruction a function.
// Run by every thread.
// Reads and writes 16 lanes; a lane of Pairs is two bf16 numbers.
// Source: Intel Intrinsics Guide.
#pragma once

#include "humming/isa/avx512.h"

namespace humming {

using Pairs = __m512i;

HUMMING_INLINE Pairs load_pairs(const uint32_t* from) { return _mm512_loadu_si512(from); }
HUMMING_INLINE void store_pairs(uint32_t* to, Pairs v) { _mm512_storeu_si512(to, v); }
HUMMING_INLINE Pairs broadcast_pair(uint32_t pair) { return _mm512_set1_epi32((int)pair); }

// sum + both products of each lane, in fp32 to nearest even. Takes denormal inputs as zero, and
// makes a denormal sum zero.
HUMMING_INLINE Vec add_products(Vec sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// table[i % 32] for each of 32 16-bit elements i: their low 5 bits pick, the others do not matter.
HUMMING_INLINE Pairs lookup_pairs(Codes elements, const uint16_t (&table)[32]) {
  return _mm512_permutexvar_epi16(elements, _mm512_loadu_si512(table));
}
// 32 consecutive 16-bit elements, put into the order that `order` lists.
HUMMING_INLINE Pairs load_in_order(const uint16_t* from, const uint16_t (&order)[32]) {
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), _mm512_loadu_si512(from));
}

}  // namespace humming
