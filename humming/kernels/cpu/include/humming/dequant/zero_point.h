// What is taken off each value before it is multiplied: nothing, or the group's zero point.
// Run by every thread.
// Reads zero points fp32 of 16 rows -> values less their zero point, in registers.
// Technique: code and zero point are subtracted before anything is multiplied, as a sum of codes
//   may be far larger than what is left of it.
#pragma once

#include "humming/static_for.h"

namespace humming {

template <class Type_>
struct Symmetric {
  using Type = Type_;
  using Unit = typename Type::Unit;
  struct Zero {};
  static constexpr bool has_zero_points = false;
  static constexpr bool is_whole = true;  // what is taken off is a whole number

  static HUMMING_INLINE Zero load_zero(const float*) { return {}; }
  template <int j>
  static HUMMING_INLINE Vec value(const Unit& unit, Zero) {
    return Type::template value<j>(unit);
  }
};

// Zero points that are whole numbers, or, where `is_whole` is false, any.
template <class Type_, bool is_whole_>
struct ZeroPoint {
  using Type = Type_;
  using Unit = typename Type::Unit;
  using Zero = Vec;
  static constexpr bool has_zero_points = true;
  static constexpr bool is_whole = is_whole_;

  static HUMMING_INLINE Zero load_zero(const float* from) { return load(from); }
  template <int j>
  static HUMMING_INLINE Vec value(const Unit& unit, const Zero& zero) {
    return sub(Type::template value<j>(unit), zero);
  }
};

}  // namespace humming
