// Tables of the values of all codes of a type, for instructions that look up.
// Run by the compiler.
// Reads a type's float_bits: the fp32 pattern of a code's value.
// Technique: entries repeat up to the table's size, so that bits above a code do not matter.
#pragma once

#include <cstdint>

namespace humming {

constexpr int kMantissaBits = 23;  // of fp32
constexpr int kWordBits = 32;

template <class Number, int entries>
struct Table {
  Number of[entries];
};

template <class Type, int entries>
constexpr Table<float, entries> fp32_values() {
  Table<float, entries> table = {};
  for (uint32_t i = 0; i < (uint32_t)entries; ++i) {
    table.of[i] = __builtin_bit_cast(float, Type::float_bits(i & ((1u << Type::bits) - 1)));
  }
  return table;
}
// The values of a type's first codes.
template <class Type, int entries>
constexpr Table<float, entries> kValues = fp32_values<Type, entries>();

template <class Type, int entries, uint32_t first>
constexpr Table<uint16_t, entries> bf16_values() {
  Table<uint16_t, entries> table = {};
  for (uint32_t i = 0; i < (uint32_t)entries; ++i) {
    const uint32_t code = (first + i) & ((1u << Type::bits) - 1);
    table.of[i] = (uint16_t)(Type::float_bits(code) >> 16);
  }
  return table;
}
// The values of codes from `first` on, as bf16 numbers, which they must be.
template <class Type, int entries, uint32_t first = 0>
constexpr Table<uint16_t, entries> kBf16Values = bf16_values<Type, entries, first>();

}  // namespace humming
