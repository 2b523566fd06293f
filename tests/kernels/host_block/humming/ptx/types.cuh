// Stands in for the kernels' own header where a block runs on the host.
#pragma once
#include "humming/host.h"

namespace humming {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

struct alignas(8) Words2 {
  u32 word[2];
};
struct alignas(16) Words4 {
  u32 word[4];
};

}  // namespace humming
