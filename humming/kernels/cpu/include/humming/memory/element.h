// Element types of activations and outputs: how 16 of them become a Vec and back.
// Run by every thread.
// Reads and writes 16, or fewer, consecutive elements; never beyond `count`.
// Technique: none.
#pragma once

#include <cstring>

#include "humming/memory/packed_weight.h"

namespace humming {

struct Fp32 {
  using Stored = float;
  static HUMMING_INLINE Vec load16(const Stored* from) { return load(from); }
  static HUMMING_INLINE void store16(Stored* to, Vec v) { store(to, v); }
};
struct Bf16 {
  using Stored = uint16_t;
  static HUMMING_INLINE Vec load16(const Stored* from) { return load_bf16(from); }
  static HUMMING_INLINE void store16(Stored* to, Vec v) { store_bf16(to, v); }
};
struct Fp16 {
  using Stored = uint16_t;
  static HUMMING_INLINE Vec load16(const Stored* from) { return load_fp16(from); }
  static HUMMING_INLINE void store16(Stored* to, Vec v) { store_fp16(to, v); }
};

// The first `count` of 16 elements; the other lanes are zero.
template <class Element>
HUMMING_INLINE Vec load_some(const typename Element::Stored* from, int64_t count) {
  if (count >= kLanes) return Element::load16(from);
  typename Element::Stored staged[kLanes] = {};
  std::memcpy(staged, from, (size_t)count * sizeof(*from));
  return Element::load16(staged);
}

template <class Element>
HUMMING_INLINE void store_some(typename Element::Stored* to, Vec v, int64_t count) {
  if (count >= kLanes) return Element::store16(to, v);
  typename Element::Stored staged[kLanes];
  Element::store16(staged, v);
  std::memcpy(to, staged, (size_t)count * sizeof(*to));
}

}  // namespace humming
