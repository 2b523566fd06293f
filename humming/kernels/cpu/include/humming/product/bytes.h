// Products of quantized x and w in whole numbers, four columns at a time: what the mainloops
//   multiply with where activations are int8.
// Run by every thread.
// Reads bytes of quantized x and codes of w -> factors and values in registers or, by 16, in
//   memory.
// Technique: sums are exact; a span of at most 2^16 columns cannot overflow them.
#pragma once

#include "humming/dequant/bytes.h"
#include "humming/memory/element.h"

namespace humming {

template <class Dequant_>
struct ByteProduct {
  using Dequant = Dequant_;
  using Source = BytesOf<typename Dequant::Type>;
  using Factor = uint32_t;  // what a row of x has in one term: four signed bytes
  using Values = Codes;     // what 16 rows of w have in one term: four unsigned bytes each
  using Sum = Codes;        // what is summed of 16 rows of w: int32
  using Unit = typename Source::Unit;
  struct Zero {};
  static constexpr int bits = Dequant::Type::bits;
  static constexpr int bias = Source::bias;
  static constexpr int term_columns = 4;
  static constexpr bool flushes_denormals = false;
  static constexpr bool quantizes_x = true;
  template <class Activation>
  static constexpr bool takes = true;
  static constexpr bool takes_weight =
      !Dequant::has_zero_points && !Dequant::Type::is_float && (bits == 4 || bits == 8);

  static HUMMING_INLINE Zero load_zero(const float*) { return {}; }
  template <int term>
  static HUMMING_INLINE Values decode(const Unit& unit, Zero) {
    return Source::template bytes<term>(unit);
  }
  static HUMMING_INLINE Sum nothing() { return zero_codes(); }
  static HUMMING_INLINE Sum multiply_add(Factor factor, Values values, Sum sum) {
    return add_byte_products(sum, values, factor);
  }
  static HUMMING_INLINE Sum add_sums(Sum a, Sum b) { return add_codes(a, b); }
  static HUMMING_INLINE Values load_values(const Factor* from) { return load_codes(from); }
  static HUMMING_INLINE void store_values(Factor* to, Values values) { store_codes(to, values); }

  // The factors of 32 bytes of quantized x.
  static HUMMING_INLINE void factors(const uint8_t* from, Factor* to) {
    for (int term = 0; term < kStepColumns / term_columns; ++term) {
      Factor factor = 0;
      for (int i = 0; i < 4; ++i) {
        factor |= (Factor)from[term / 2 * 8 + Source::column(term % 2, i)] << (8 * i);
      }
      to[term] = factor;
    }
  }
};

}  // namespace humming
