// A block of a CUDA kernel on the host: each thread is a fiber of one host thread, and barriers, warp
// shuffles, fragments and products of tensor cores are what the PTX ISA says of them. Copies that a
// GPU makes asynchronously are made as late as it may: when their thread waits for them.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static

struct float2 {
  float x, y;
};
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace host {

struct Barrier {
  int arrived = 0, generation = 0;
};
struct Copy {
  uint32_t target;     // or the barrier that is told when all before have been made: of no bytes
  const void* source;  // null: zeros
  int size, group;
};
struct Phase {  // of a barrier in shared memory
  int expected, left, number;
};
struct Fiber {
  std::vector<Copy> copies;
  int groups = 0;  // that were closed
  ucontext_t context;
  std::vector<char> stack;
  bool done = false;
};
inline Dim3 block_index, grid_size, block_size;
inline std::vector<std::unique_ptr<Fiber>> fibers;
inline ucontext_t home;
inline int current = 0;
inline Barrier block_barrier, warp_barriers[64];
inline std::function<void()> body;
inline std::vector<char> shared_memory;
inline std::map<uint32_t, Phase> phases;
inline std::function<void()> kernel_before;  // ends when it is waited for
inline uint32_t lanes[64][32][8];            // what the lanes of a warp show each other

inline Dim3 thread_index() { return {static_cast<unsigned>(current), 0, 0}; }
inline void yield() { swapcontext(&fibers[current]->context, &home); }
inline void wait(Barrier& barrier, int count) {
  const int generation = barrier.generation;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
  } else {
    while (barrier.generation == generation) yield();
  }
}
inline int warp() { return current / 32; }
inline int lane() { return current % 32; }
inline void warp_wait() { wait(warp_barriers[warp()], 32); }
inline void entry() {
  body();
  fibers[current]->done = true;
  yield();
}
inline void run_block(int threads) {
  fibers.clear();
  for (int t = 0; t < threads; ++t) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack.resize(128 << 10);
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.data();
    fiber->context.uc_stack.ss_size = fiber->stack.size();
    fiber->context.uc_link = &home;
    makecontext(&fiber->context, entry, 0);
    fibers.push_back(std::move(fiber));
  }
  for (bool left = true; left;) {
    left = false;
    for (current = 0; current < threads; ++current)
      if (!fibers[current]->done) {
        swapcontext(&home, &fibers[current]->context);
        left = true;
      }
  }
}
// Blocks follow each other; each finds other words in its shared memory than it may count on.
inline void run(Dim3 grid, int threads, int smem_bytes, std::function<void()> kernel) {
  grid_size = grid, block_size = {static_cast<unsigned>(threads), 1, 1};
  body = std::move(kernel);
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      shared_memory.assign(smem_bytes + 64, static_cast<char>(0xFF));
      phases.clear();
      block_index = {x, y, 0};
      run_block(threads);
    }
}

inline void make(const Copy& copy) {
  if (copy.size == 0) {
    Phase& phase = phases.at(copy.target);
    if (--phase.left == 0) phase.left = phase.expected, ++phase.number;
    return;
  }
  char bytes[16] = {};
  if (copy.source) std::memcpy(bytes, copy.source, copy.size);
  if (copy.target + copy.size > shared_memory.size()) std::abort();
  std::memcpy(shared_memory.data() + copy.target, bytes, copy.size);
}
inline void make_all() {
  for (auto& fiber : fibers) {
    for (const Copy& copy : fiber->copies) make(copy);
    fiber->copies.clear();
  }
}

template <class T>
T from(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline char* shared(uint32_t address) { return shared_memory.data() + address; }

inline float e4m3(uint32_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float sign = byte & 128 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -9);
  return sign * std::ldexp(8 + mantissa, exponent - 10);
}
inline float e5m2(uint32_t byte) {
  const int exponent = byte >> 2 & 31, mantissa = byte & 3;
  const float sign = byte & 128 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -16);
  return sign * std::ldexp(4 + mantissa, exponent - 17);
}
inline float e2m1(uint32_t nibble) {
  static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return nibble & 8 ? -values[nibble & 7] : values[nibble & 7];
}
inline float s8(uint32_t byte) { return static_cast<int8_t>(byte); }
inline float s4(uint32_t nibble) { return static_cast<int>(nibble & 15) - (nibble & 8 ? 16 : 0); }

// The float nearest to `v` among all bytes of a type, ties to even codes, saturated.
template <class Decode>
uint32_t nearest(float v, int last, Decode decode) {
  const uint32_t sign = std::signbit(v) ? 128 : 0;
  const double magnitude = std::fabs(static_cast<double>(v));
  uint32_t best = 0;
  for (uint32_t code = 0; code <= static_cast<uint32_t>(last); ++code) {
    const double off = std::fabs(decode(code) - magnitude);
    const double least = std::fabs(decode(best) - magnitude);
    if (off < least || (off == least && code % 2 == 0)) best = code;
  }
  return best | sign;
}

// d += a * b of m16n8, k elements of `bits` bits, four registers of a and two of b a lane: register i
// of a is row g + 8 * (i % 2) and the i / 2-th half of k.
template <int bits, class Sum, class Decode, class Scale>
void multiply(Sum (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Sum (&c)[4],
              Decode decode, uint32_t sa, uint32_t sb, Scale scale) {
  auto& shown = lanes[warp()];
  auto& own = shown[lane()];
  for (int i = 0; i < 4; ++i) own[i] = a[i];
  own[4] = b[0], own[5] = b[1], own[6] = sa, own[7] = sb;
  warp_wait();
  constexpr int each = 32 / bits, half = 4 * each;
  for (int j = 0; j < 4; ++j) {
    const int row = lane() / 4 + j / 2 * 8, column = lane() % 4 * 2 + j % 2;
    double sum = 0;
    for (int k = 0; k < 2 * half; ++k) {
      const int t = k % half / each, place = k % each * bits;
      constexpr uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
      const uint32_t w = shown[row % 8 * 4 + t][row / 8 + k / half * 2] >> place & mask;
      const uint32_t x = shown[column * 4 + t][4 + k / half] >> place & mask;
      sum += static_cast<double>(decode(w)) * decode(x) *
             scale(shown[row % 8 * 4 + row / 8][6], shown[column * 4][7], k);
    }
    d[j] = static_cast<Sum>(c[j] + sum);
  }
  warp_wait();
}
inline double unscaled(uint32_t, uint32_t, int) { return 1; }
template <class Decode>
void multiply_16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Decode decode) {
  const float c[4] = {d[0], d[1], d[2], d[3]};
  multiply<16>(d, a, b, c, decode, 0, 0, unscaled);
}
inline float bf16(uint32_t v) { return from<float>(&(v <<= 16)); }
inline float f16(uint32_t v) { return static_cast<float>(from<_Float16>(&v)); }

// Of m8n8: a register of a and one of b.
template <int bits, class Decode>
void multiply_8(int& d0, int& d1, uint32_t a, uint32_t b, int c0, int c1, Decode decode) {
  auto& shown = lanes[warp()];
  shown[lane()][0] = a, shown[lane()][1] = b;
  warp_wait();
  constexpr int each = 32 / bits;
  int sums[2] = {c0, c1};
  for (int j = 0; j < 2; ++j)
    for (int k = 0; k < 4 * each; ++k) {
      const int t = k / each, place = k % each * bits;
      const uint32_t w = shown[lane() / 4 * 4 + t][0] >> place & ((1u << bits) - 1);
      const uint32_t x = shown[(lane() % 4 * 2 + j) * 4 + t][1] >> place & ((1u << bits) - 1);
      sums[j] += static_cast<int>(decode(w) * decode(x));
    }
  d0 = sums[0], d1 = sums[1];
  warp_wait();
}

inline uint32_t shuffled(uint32_t v, int from) {
  auto& shown = lanes[warp()];
  shown[lane()][0] = v;
  warp_wait();
  const uint32_t found = shown[from][0];
  warp_wait();
  return found;
}

}  // namespace host

#define threadIdx (host::thread_index())
#define blockIdx (host::block_index)
#define gridDim (host::grid_size)
#define blockDim (host::block_size)

inline float __uint_as_float(unsigned bits) { return host::from<float>(&bits); }
inline float __fmul_rn(float a, float b) {  // rounded, whatever is added to it
  volatile float product = a * b;
  return product;
}
inline float __int_as_float(int bits) { return host::from<float>(&bits); }
inline unsigned __float_as_uint(float v) { return host::from<unsigned>(&v); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline int __float2int_rn(float v) { return static_cast<int>(std::nearbyint(v)); }
inline void __syncwarp() { host::warp_wait(); }
inline void __syncthreads() { host::wait(host::block_barrier, host::block_size.x); }
template <class T>
T __shfl_sync(unsigned, T v, int from) {
  const uint32_t found = host::shuffled(host::from<uint32_t>(&v), from);
  return host::from<T>(&found);
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int bits) {
  const uint32_t found = host::shuffled(host::from<uint32_t>(&v), host::lane() ^ bits);
  return host::from<T>(&found);
}
using std::max;
using std::min;
inline unsigned min(unsigned a, int b) { return std::min(a, static_cast<unsigned>(b)); }
inline unsigned min(int a, unsigned b) { return std::min(static_cast<unsigned>(a), b); }
