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
  static constexpr bool scaled = Plan::scaled_codes;
  static constexpr int tiles = Config::tiles_n;

  u32 table;
  Words4 words[tiles][2];
  u32 scales[tiles][scaled ? Plan::steps : 1];
  Words2 magnitudes[tiles][2];  // of the step that comes next

  __device__ __forceinline__ void load(const Ring8Drain<Config>& drain) {
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      words[t][0] = drain.words(t, 0), words[t][1] = drain.words(t, 1);
      if constexpr (scaled) {
#pragma unroll
        for (int step = 0; step < Plan::steps; ++step)
          scales[t][step] = drain.group_scales(t, step);
      }
    }
    look_up(0);
  }
  __device__ __forceinline__ void look_up(int step) {
    if constexpr (scaled) {
#pragma unroll
      for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          magnitudes[t][half] =
              ptx::load_shared_words2(Config::Codes::place(table, scales[t][step], half));
    }
  }
  template <bool raw>
  __device__ __forceinline__ void fragment(u32 (&a)[4], int t, int step) const {
    const auto& of_half = words[t][step / 2].word;
    if constexpr (scaled) {
      Config::Codes::fragment(a, of_half, step % 2, magnitudes[t]);
    } else if constexpr (raw) {
      Config::Codes::raw(a, of_half, step % 2);
    } else {
      Config::Codes::fragment(a, of_half, step % 2);
    }
  }
};

// Weights put into bytes in registers: while tensor cores multiply some, the next are made ready.
template <class Config, int used = Wgmma8Plan<Config>::columns>
__device__ __forceinline__ void group_multiply_registers(Wgmma8Sums<Config>& sums,
                                                         Ring8Drain<Config>& drain, int units) {
  using Plan = Wgmma8Plan<Config>;
  using Product = ByteProduct<typename Config::Type>;
  constexpr int tiles = Config::tiles_n, sets = 2;
  u32 a[sets][tiles][4] = {};
  u32 bias[1][4] = {};
  if constexpr (Plan::raw) {
#pragma unroll
    for (int i = 0; i < 4; ++i) bias[0][i] = Config::Codes::bias;
    settle_bytes(bias);
  }
  UnitCodes<Config> codes;
  codes.table = drain.shared + Plan::table;
  u32 before = 0;  // the slot of the unit before, whose products may still run
  clear_sums(sums);
  drain.acquire();
  codes.load(drain);
#pragma unroll 1
  for (int u = 0; u < units; ++u) {
    const bool last = u + 1 == units;
    const u32 x = drain.x_base(0), slot = drain.place.slot;
#pragma unroll
    for (int step = 0; step < Plan::steps; ++step) {
      auto& set = a[step % sets];
#pragma unroll
      for (int t = 0; t < tiles; ++t) codes.template fragment<Plan::raw>(set[t], t, step);
      settle_bytes(set);
      ptx::wgmma_fence();
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        auto& of = first_columns<used>(sums[t]);
        Product::template add<1>(of, set[t], drain.descriptor(x, step));
        if constexpr (Plan::raw) Product::template add<1>(of, bias[0], drain.descriptor(x, step));
      }
      ptx::wgmma_commit();
      if (step < 3) codes.look_up(step + 1);
      if (step == 3) {
        drain.next();
        if (!last) {
          drain.acquire();
          codes.load(drain);
        }
      }
      ptx::wgmma_wait<sets - 1>();
      settle_bytes(a[(step + 1) % sets]);
      if (step == 1 && u > 0) drain.release(before);
    }
    before = slot;
  }
  ptx::wgmma_wait<0>();
  settle_bytes(bias);
  settle_sums(sums);
  drain.release(before);
}

}  // namespace humming
