// Loops whose index is a constant: the body is inlined once per index, so arrays of registers
//   stay in registers.
// Run by every thread.
// Reads and writes nothing itself.
// Technique: fold expression over std::integer_sequence (C++17).
#pragma once

#include <cstdint>
#include <utility>

#define HUMMING_INLINE inline __attribute__((always_inline))

namespace humming {

template <class F, int... I>
HUMMING_INLINE void static_for_sequence(F&& body, std::integer_sequence<int, I...>) {
  (body(std::integral_constant<int, I>{}), ...);
}

// body(integral_constant<int, 0>) .. body(integral_constant<int, count - 1>)
template <int count, class F>
HUMMING_INLINE void static_for(F&& body) {
  static_for_sequence(body, std::make_integer_sequence<int, count>{});
}

}  // namespace humming
