// Stands in for the kernels' own header, so that a C++ compiler can run what is in dequant/.
#pragma once
#include <cmath>
#include <cstring>
#define __device__
#define __forceinline__ inline
struct float2 {
  float x, y;
};
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
namespace humming {
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;
}  // namespace humming
