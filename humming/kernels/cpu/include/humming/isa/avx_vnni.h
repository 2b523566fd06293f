// The vocabulary of avx2.h, and sums of byte products (AVX_VNNI): one instruction a function.
// Run by every thread.
// Reads and writes 16 lanes; a lane of bytes is four unsigned ones.
// Source: Intel Intrinsics Guide.
#pragma once

#define HUMMING_BYTE_PRODUCTS
#include <immintrin.h>

#include "humming/static_for.h"

namespace humming {

HUMMING_INLINE __m256i add_byte_products(__m256i sum, __m256i bytes, __m256i factors) {
  return _mm256_dpbusd_avx_epi32(sum, bytes, factors);
}

}  // namespace humming

#include "humming/isa/avx2.h"
