// How a warpgroup multiplies bytes by bytes over a run of k, sums in the tensor cores: weights from
//   shared memory as they are, or put into bytes in registers.
// Run by a warpgroup.
// Reads -> writes: the ring of x and weights -> accumulators.
// Source: own.
#pragma once
#include "humming/dequant/byte_product.cuh"
#include "humming/epilogue/wgmma8.cuh"
#include "humming/memory/wgmma8_ring.cuh"

namespace humming {

template <class T, int tiles, int columns>
__device__ __forceinline__ void settle_sums(T (&sums)[tiles][columns][4]) {
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) ptx::settle(sums[t][c][i]);
}

// Fragments are in their registers before what follows, and stay there until what came before.
template <int tiles>
__device__ __forceinline__ void settle_bytes(u32 (&a)[tiles][4]) {
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::settle(a[t][i]);
}

template <class T, int tiles, int columns>
__device__ __forceinline__ void clear_sums(T (&sums)[tiles][columns][4]) {
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[t][c][i] = 0;
}

// The first `used` columns of a tile's sums.
template <int used, class T, int columns>
__device__ __forceinline__ T (&first_columns(T (&sums)[columns][4]))
    [used][4] { return *reinterpret_cast<T(*)[used][4]>(&sums); }

// Both operands from shared memory: a unit's products run while the next unit is waited for. Of the
// sums' columns only the first `used` are multiplied, here and below; the others are zero.
template <class Config, int used = Wgmma8Plan<Config>::columns>
__device__ __forceinline__
    void group_multiply_direct(Wgmma8Sums<Config>& sums, Ring8Drain<Config>& drain, int units) {
  using Product = ByteProduct<typename Config::Type>;
  u32 before = 0;  // the slot of the unit before, whose products may still run
  clear_sums(sums);
#pragma unroll 1
  for (int u = 0; u < units; ++u) {
    drain.acquire();
    const u32 x = drain.x_base(0);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Wgmma8Plan<Config>::steps; ++step)
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t)
        Product::template add<1>(first_columns<used>(sums[t]),
                                 drain.descriptor(drain.weights_base(t), step),
                                 drain.descriptor(x, step));
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (u > 0) drain.release(before);
    before = drain.place.slot;
    drain.next();
  }
  ptx::wgmma_wait<0>();
  settle_sums(sums);
  drain.release(before);
}

// This lane's codes of a unit of its warp's row tiles, and the scales that they take on.
template <class Config>
struct UnitCodes {
  using Plan = Wgmma8Plan<Config>;
  using Magnitudes = Words2[2];  // of rows g and g + 8
  static constexpr bool scaled = Plan::scaled_codes;
  static constexpr int tiles = Config::tiles_n;

  u32 table;
  Words4 words[tiles][2];
  u32 scales[tiles][scaled ? Plan::steps : 1];

  __device__ __forceinline__ void load_words(const Ring8Drain<Config>& drain, int t, int half) {
    words[t][half] = drain.words(t, half);
  }
  __device__ __forceinline__ void load_scales(const Ring8Drain<Config>& drain, int t) {
    if constexpr (scaled) {
#pragma unroll
      for (int step = 0; step < Plan::steps; ++step) scales[t][step] = drain.group_scales(t, step);
    }
  }
  __device__ __forceinline__ void look_up(Magnitudes& magnitudes, int t, int step) const {
    if constexpr (scaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        magnitudes[half] =
            ptx::load_shared_words2(Config::Codes::place(table, scales[t][step], half));
    }
  }
  __device__ __forceinline__ void fragment(u32 (&a)[4], const Magnitudes& magnitudes, int t,
                                           int step) const {
    const auto& of_half = words[t][step / 2].word;
    if constexpr (scaled) {
      Config::Codes::fragment(a, of_half, step % 2, magnitudes);
    } else if constexpr (Plan::raw) {
      Config::Codes::raw(a, of_half, step % 2);
    } else {
      Config::Codes::fragment(a, of_half, step % 2);
    }
  }
};

// The fragment that takes away what raw codes are too large by.
template <class Config>
__device__ __forceinline__ void fill_bias(u32 (&bias)[1][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Wgmma8Plan<Config>::raw) {
      bias[0][i] = Config::Codes::bias;
    } else {
      bias[0][i] = 0;
    }
  }
  settle_bytes(bias);
}

// Weights put into bytes in registers. Many rows of x: while tensor cores multiply one step's, the
// next step's are made ready, and what the next unit needs is on its way.
template <class Config, int used = Wgmma8Plan<Config>::columns>
__device__ __forceinline__ void group_multiply_registers(Wgmma8Sums<Config>& sums,
                                                         Ring8Drain<Config>& drain, int units) {
  using Plan = Wgmma8Plan<Config>;
  using Product = ByteProduct<typename Config::Type>;
  using Codes = UnitCodes<Config>;
  constexpr int tiles = Config::tiles_n, sets = 2;
  u32 a[sets][tiles][4] = {}, bias[1][4];
  typename Codes::Magnitudes magnitudes[tiles];  // of the step that comes next
  fill_bias<Config>(bias);
  Codes codes;
  codes.table = drain.shared + Plan::table;
  auto look_up = [&](int step) {
#pragma unroll
    for (int t = 0; t < tiles; ++t) codes.look_up(magnitudes[t], t, step);
  };
  auto load_words = [&](int half) {
#pragma unroll
    for (int t = 0; t < tiles; ++t) codes.load_words(drain, t, half);
  };
  auto load_scales = [&] {
#pragma unroll
    for (int t = 0; t < tiles; ++t) codes.load_scales(drain, t);
  };
  u32 before = 0;  // the slot of the unit before, whose products may still run
  clear_sums(sums);
  drain.acquire();
  load_scales();
  load_words(0);
  load_words(1);
  look_up(0);
#pragma unroll 1
  for (int u = 0; u < units; ++u) {
    const bool last = u + 1 == units;
    const u32 x = drain.x_base(0), slot = drain.place.slot;
#pragma unroll
    for (int step = 0; step < Plan::steps; ++step) {
      auto& set = a[step % sets];
#pragma unroll
      for (int t = 0; t < tiles; ++t) codes.fragment(set[t], magnitudes[t], t, step);
      settle_bytes(set);
      ptx::wgmma_fence();
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        auto& of = first_columns<used>(sums[t]);
        Product::template add<1>(of, set[t], drain.descriptor(x, step));
        if constexpr (Plan::raw) Product::template add<1>(of, bias[0], drain.descriptor(x, step));
      }
      ptx::wgmma_commit();
      if (step < 3) look_up(step + 1);
      if (step == 3 && !last) look_up(0);
      ptx::wgmma_wait<sets - 1>();
      settle_bytes(a[(step + 1) % sets]);
      if (step == 0 && u > 0) drain.release(before);
      if (step == 2) {
        drain.next();
        if (!last) {
          drain.acquire();
          load_scales();
          load_words(0);
        }
      }
      if (step == 3 && !last) load_words(1);
    }
    before = slot;
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int set = 0; set < sets; ++set) settle_bytes(a[set]);
  settle_bytes(bias);
  settle_sums(sums);
  drain.release(before);
}

// Few rows of x and one tile: products take no time, so that all of a unit are begun at once.
template <class Config, int used = Wgmma8Plan<Config>::columns>
__device__ __forceinline__ void group_multiply_few(Wgmma8Sums<Config>& sums,
                                                   Ring8Drain<Config>& drain, int units) {
  using Plan = Wgmma8Plan<Config>;
  using Product = ByteProduct<typename Config::Type>;
  using Codes = UnitCodes<Config>;
  u32 a[Plan::steps][4] = {}, bias[1][4];
  typename Codes::Magnitudes magnitudes[Plan::steps];
  fill_bias<Config>(bias);
  Codes codes;
  codes.table = drain.shared + Plan::table;
  u32 before = 0;  // the slot of the unit before, whose products may still run
  clear_sums(sums);
#pragma unroll 1
  for (int u = 0; u < units; ++u) {
    drain.acquire();
    codes.load_scales(drain, 0);
    codes.load_words(drain, 0, 0);
    codes.load_words(drain, 0, 1);
#pragma unroll
    for (int step = 0; step < Plan::steps; ++step) codes.look_up(magnitudes[step], 0, step);
    ptx::wgmma_wait<0>();
    settle_bytes(a);
    if (u > 0) drain.release(before);
#pragma unroll
    for (int step = 0; step < Plan::steps; ++step)
      codes.fragment(a[step], magnitudes[step], 0, step);
    settle_bytes(a);
    const u32 x = drain.x_base(0);
    auto& of = first_columns<used>(sums[0]);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Plan::steps; ++step) {
      Product::template add<1>(of, a[step], drain.descriptor(x, step));
      if constexpr (Plan::raw) Product::template add<1>(of, bias[0], drain.descriptor(x, step));
    }
    ptx::wgmma_commit();
    before = drain.place.slot;
    drain.next();
  }
  ptx::wgmma_wait<0>();
  settle_bytes(a);
  settle_bytes(bias);
  settle_sums(sums);
  drain.release(before);
}

}  // namespace humming
