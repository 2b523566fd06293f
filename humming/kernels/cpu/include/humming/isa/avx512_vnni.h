// The vocabulary of avx512.h, and sums of byte products (AVX512_VNNI): one instruction a function.
// Run by every thread.
// Reads and writes 16 lanes; a lane of bytes is four unsigned ones.
// Source: Intel Intrinsics Guide.
#pragma once

#define HUMMING_BYTE_PRODUCTS
#include "humming/isa/avx512.h"

namespace humming {

// sum + the four products of a lane's unsigned bytes with the signed bytes of `factor`
HUMMING_INLINE Codes add_byte_products(Codes sum, Codes bytes, uint32_t factor) {
  return _mm512_dpbusd_epi32(sum, bytes, _mm512_set1_epi32((int)factor));
}

}  // namespace humming
