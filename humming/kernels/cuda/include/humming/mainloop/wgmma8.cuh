// A block of one thread that fills the ring and warpgroups that multiply bytes by bytes: weights from
//   shared memory, or put into bytes in registers; sums stay in registers over all of k.
// Run by all threads of a block.
// Reads -> writes: codes of x [m, k], packed codes, scales, bias -> out [m, n].
// Source: own. Tensor cores keep few bits of a sum of e4m3 products: `promote` adds what each 128
//   columns give in fp32, and scales of groups can be applied there.
#pragma once
#include "humming/dequant/byte_product.cuh"
#include "humming/epilogue/wgmma8.cuh"
#include "humming/memory/wgmma8_ring.cuh"
#include "humming/memory/wgmma8_scales.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void thread_fill8(const Wgmma8Maps& maps, const Wgmma8Call& call,
                                             u32 shared) {
  WgmmaSchedule<Config, Wgmma8Plan<Config>> schedule(call);
  Ring8Fill<Config> fill{maps, shared, {}};
  WgmmaWork work;
  if (!schedule.next(work)) return;
  ptx::prefetch_tensor_map(maps.codes);
  ptx::prefetch_tensor_map(maps.x);
  // What the kernel before does not write, before it has ended.
  const int early = min(work.units, Config::num_stages);
  const RingPlace begin = fill.place;
#pragma unroll 1
  for (int u = 0; u < early; ++u) {
    fill.weights(work, u);
    fill.place.template advance<Config::num_stages>();
  }
  fill.place = begin;
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
#pragma unroll 1
  for (int u = 0; u < early; ++u) fill.x(work, u);
  int u = early;
  do {
#pragma unroll 1
    for (; u < work.units; ++u) {
      fill.weights(work, u);
      fill.x(work, u);
    }
    u = 0;
  } while (schedule.next(work));
}

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

// Both operands from shared memory: a unit's products run while the next unit is waited for.
template <class Config>
__device__ __forceinline__ void group_multiply_direct(Wgmma8Sums<Config>& sums,
                                                      Ring8Drain<Config>& drain, int units) {
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
        Product::template add<1>(sums[t], drain.descriptor(drain.weights_base(t), step),
                                 drain.descriptor(x, step));
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (u > 0) drain.release(before);
    before = drain.place.slot;
    drain.place.template advance<Config::num_stages>();
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
template <class Config>
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
        Product::template add<1>(sums[t], set[t], drain.descriptor(x, step));
        if constexpr (Plan::raw)
          Product::template add<1>(sums[t], bias[0], drain.descriptor(x, step));
      }
      ptx::wgmma_commit();
      if (step < 3) codes.look_up(step + 1);
      if (step == 3) {
        drain.place.template advance<Config::num_stages>();
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

// sums += part * scales, of tile `t` from column `first` on.
template <class Config, class T>
__device__ __forceinline__ void group_promote(
    Wgmma8Promoted<Config>& sums, const T (&part)[1][Wgmma8Plan<Config>::part_columns][4],
    const Ring8Drain<Config>& drain, const Wgmma8Scales<Config>& scales, int t, int first) {
  constexpr bool of_x = Config::x_group_size != 0, of_w = Config::group_size != 0;
  const float of_rows[2] = {scales.factor(t, 0), scales.factor(t, 1)};
#pragma unroll
  for (int c = 0; c < Wgmma8Plan<Config>::part_columns; ++c) {
    float2 of_tokens = {1.0f, 1.0f};
    if constexpr (of_x) of_tokens = drain.x_scales(first + c);
    if constexpr (of_x && Config::block_scales != 0) {
      of_tokens.x *= of_rows[0];
      of_tokens.y *= of_rows[0];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float of_token = i % 2 ? of_tokens.y : of_tokens.x;
      const float of_row = of_rows[i / 2];
      const float v = static_cast<float>(part[0][c][i]);
      float& sum = sums[t][first + c][i];
      if constexpr (of_x && of_w && Config::block_scales == 0) {
        sum = fmaf(v, of_row * of_token, sum);
      } else if constexpr (of_x) {
        sum = fmaf(v, of_token, sum);
      } else if constexpr (of_w) {
        sum = fmaf(v, of_row, sum);
      } else {
        sum += v;
      }
    }
  }
}

// The products of each unit and part of a tile are waited for and added up in fp32; the other
// warpgroups keep the tensor cores busy meanwhile.
template <class Config>
__device__ __forceinline__ void group_multiply_promoted(Wgmma8Promoted<Config>& sums,
                                                        Ring8Drain<Config>& drain,
                                                        Wgmma8Scales<Config>& scales, int units) {
  using Plan = Wgmma8Plan<Config>;
  using Product = ByteProduct<typename Config::Type>;
  constexpr int tiles = Config::tiles_n;
  clear_sums(sums);
#pragma unroll 1
  for (int u = 0; u < units; ++u) {
    drain.acquire();
    scales.take();
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      u32 a[Plan::direct ? 1 : Plan::steps][4];
      if constexpr (!Plan::direct) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const Words4 words = drain.words(t, half);
#pragma unroll
          for (int step = 0; step < 2; ++step)
            Config::Codes::fragment(a[2 * half + step], words.word, step);
        }
        settle_bytes(a);
      }
#pragma unroll
      for (int p = 0; p < Plan::parts; ++p) {
        typename Product::Sum part[1][Plan::part_columns][4];
        const u32 x = drain.x_base(p * Plan::part_columns * 8);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < Plan::steps; ++step) {
          const u64 of_x = drain.descriptor(x, step);
          if constexpr (Plan::direct) {
            const u64 of_w = drain.descriptor(drain.weights_base(t), step);
            if (step == 0) Product::template add<0>(part[0], of_w, of_x);
            if (step != 0) Product::template add<1>(part[0], of_w, of_x);
          } else {
            if (step == 0) Product::template add<0>(part[0], a[step], of_x);
            if (step != 0) Product::template add<1>(part[0], a[step], of_x);
          }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        settle_sums(part);
        group_promote<Config>(sums, part, drain, scales, t, p * Plan::part_columns);
      }
      if constexpr (!Plan::direct) settle_bytes(a);
    }
    drain.release(drain.place.slot);
    drain.place.template advance<Config::num_stages>();
  }
}

// The one of these that the config names; whole numbers end as fp32.
template <class Config>
__device__ __forceinline__ void group_multiply_exact(Wgmma8Sums<Config>& sums,
                                                     Ring8Drain<Config>& drain, int units) {
  if constexpr (Wgmma8Plan<Config>::direct) {
    group_multiply_direct<Config>(sums, drain, units);
  } else {
    group_multiply_registers<Config>(sums, drain, units);
  }
}
template <class Config>
__device__ __forceinline__ void group_multiply8(WgmmaSums<Config>& sums, Ring8Drain<Config>& drain,
                                                Wgmma8Scales<Config>& scales, int units) {
  if constexpr (Wgmma8Plan<Config>::promoted) {
    group_multiply_promoted<Config>(sums, drain, scales, units);
  } else if constexpr (ByteProduct<typename Config::Type>::whole) {
    Wgmma8Sums<Config> exact;
    group_multiply_exact<Config>(exact, drain, units);
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
      for (int c = 0; c < Wgmma8Plan<Config>::columns; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[t][c][i] = static_cast<float>(exact[t][c][i]);
  } else {
    group_multiply_exact<Config>(sums, drain, units);
  }
}

template <class Config>
__device__ __forceinline__ void group_drain8(const Wgmma8Call& call, u32 shared, int group,
                                             int warp, int lane) {
  using Plan = Wgmma8Plan<Config>;
  WgmmaSchedule<Config, Plan> schedule(call);
  Ring8Drain<Config> drain{shared, group, warp, lane, {}};
  const WgmmaPartials<Config, Plan> partials(call, shared, group, warp * 32 + lane);
  WgmmaWork work;
#pragma unroll 1
  while (schedule.next(work)) {
    Wgmma8Scales<Config> scales(call, work, group, warp, lane);
    WgmmaSums<Config> sums;
    group_multiply8<Config>(sums, drain, scales, work.units);
    u32 own = 0xFFFFFFFFu;
    if (work.sharers > 1) own = partials.meet(sums, work, schedule);
    group_store8<Config>(sums, own, call, work, shared, group, warp, lane);
  }
}

// What scaled codes are looked up in.
template <class Config>
__device__ __forceinline__ void block_fill_table(u32 table) {
  using Codes = typename Config::Codes;
  for (u32 e = threadIdx.x; e < Codes::entries; e += Wgmma8Plan<Config>::threads) {
    const Words2 entry = Codes::entry(e);
    ptx::store_shared_u32(table + e * Codes::entry_bytes, entry.word[0]);
    ptx::store_shared_u32(table + e * Codes::entry_bytes + 4, entry.word[1]);
  }
}

template <class Config>
__device__ __forceinline__ void block_wgmma8(const Wgmma8Maps& maps, u32 shared,
                                             const Wgmma8Call& call) {
  using Plan = Wgmma8Plan<Config>;
  shared = Plan::aligned(shared);
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ring8_init<Config>(shared);
    ptx::fence_barrier_init();
  }
  if constexpr (Plan::scaled_codes) block_fill_table<Config>(shared + Plan::table);
  __syncthreads();
  if constexpr (Config::cluster_n > 1) {  // every block's barriers are ready
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  if (warp >= Plan::consumer_warps) {
    ptx::registers_down<Plan::fill_registers>();
    if (warp == Plan::consumer_warps && lane == 0) thread_fill8<Config>(maps, call, shared);
  } else {
    ptx::registers_up<Plan::drain_registers>();
    if constexpr (Config::dependent_launch != 0) ptx::grid_dependency_wait();
    group_drain8<Config>(call, shared, warp / 4, warp % 4, lane);
  }
  if constexpr (Config::cluster_n > 1) {  // no block ends while another may arrive at its barriers
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

}  // namespace humming
