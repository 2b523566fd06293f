// One warp's ring of all that its units want: codes of every row tile, and x, in one slot; scales, which
//   are read to a unit's end, in one of their own. It runs on from tile to tile: while sums of one are
//   stored, weights of the next are on their way.
// Run by a whole converged warp; no other warp sees the ring.
// Reads -> writes: x, packed experts in global memory -> shared memory -> registers.
// Source: own. cp.async, a group for stage_tiles row tiles of a unit, its x and scales with the first
//   ones: as every unit has as many groups, waiting counts them and wants no barriers. Units come to all
//   tiles in turn, and what is copied is num_stages units ahead of what is multiplied.
#pragma once
#include "humming/memory/code_words.cuh"
#include "humming/memory/skinny_operands.cuh"
#include "humming/memory/weights_ring.cuh"
#include "humming/scheduler/skinny_walk.cuh"

namespace humming {

template <class Of>
struct SkinnyPlan<Walking<Of>> {
  static constexpr int ways = Of::warps;
  static constexpr int unit_k = 128;
  static constexpr int bits = Of::Codes::bits;
  static constexpr int piece_bytes = 256 * bits;
  static constexpr int groups = Of::group_size ? unit_k / Of::group_size : 0;  // of a unit
  static constexpr int columns = (Of::block_m + 7) / 8;
  static constexpr int block_rows = 16 * Of::tiles_n;
  static constexpr int stage_tiles = Of::stage_tiles;
  static constexpr int copies =
      Of::num_stages * (Of::tiles_n / stage_tiles);  // groups on their way
  static __device__ constexpr int bias_chains() { return columns == 1 ? 4 : 2; }  // as of one tile

  static constexpr int x = Of::tiles_n * piece_bytes;  // in a slot, after the codes
  static constexpr int x_row_bytes = unit_k * 2 + 16;  // padded, as in a plan of one tile
  static constexpr int slot_bytes = x + Of::block_m * x_row_bytes;
  static constexpr int slots_bytes = Of::num_stages * slot_bytes;
  static constexpr int zeros = Of::tiles_n * groups * 32;  // in a slot of scales, after these
  static constexpr int scale_slot_bytes = zeros * (1 + Of::has_zero_points);
  static constexpr int ring_bytes = slots_bytes + (Of::num_stages + 1) * scale_slot_bytes;

  // Partial sums have room of their own, as the ring is never empty.
  static constexpr int partials = Of::warps * ring_bytes;
  static constexpr int partial_pitch = block_rows + 4;
  static constexpr int way_partial_bytes = Of::block_m * partial_pitch * 4;
  static constexpr int bytes = partials + Of::warps * way_partial_bytes;
  static_assert(bytes == Of::smem_bytes, "as the formula in legality/skinny.py says");
};

template <class Of>
struct Operands<Walking<Of>> {
  using Config = Walking<Of>;
  using Plan = SkinnyPlan<Config>;
  static constexpr int chunks = Plan::unit_k / 8;  // of 16 bytes, of a row of x
  static constexpr int rows_each = (Config::block_m + 1) / 2;

  const SkinnyCall& call;
  const ExpertsCall& experts;
  int warp, lane, groups, units;
  int guessed = -1;  // the expert whose weights were asked for ahead

  // What is copied next.
  SkinnyWalk<Config> ahead;
  bool more;      // whether there is anything
  int left;       // units of its tile
  int last_tile;  // row tiles inside n, less one
  int rows_left;  // of this lane, two apart
  int columns_left;
  const char* codes;  // this lane's bytes of the first row tile
  const char* scales;
  const char* x;
  u32 sixteens[rows_each];  // where this lane's rows of x begin, in 16 bytes

  // What is multiplied.
  int rows = 0;  // of its tile
  u32 ring, slot, scale_slot;

  __device__ __forceinline__ Operands(const SkinnyCall& call_, const ExpertsCall& experts_,
                                      u32 shared, int warp_, int lane_)
      : call(call_),
        experts(experts_),
        warp(warp_),
        lane(lane_),
        groups((call_.k + 127) / 128),
        units((groups - warp_ + Config::warps - 1) / Config::warps),
        ahead(call_, experts_, lane_),
        more(false),
        ring(shared + warp_ * Plan::ring_bytes) {
    slot = ring, scale_slot = ring + Plan::slots_bytes;
  }

  // Before the kernel that may write the list is waited for: weights of the block's first tile as the
  // list has it by now, as weights change no more and most lists are older.
  __device__ __forceinline__ void guess(int experts_in_all) {
    const WalkTile tile = guessed_tile<Config>(call, experts);
    const int expert = tile.of.expert;
    more = units > 0 && expert >= 0 && expert < experts_in_all;
    if (!more) return;
    guessed = expert;
    aim(tile);
#pragma unroll 1
    for (int s = 0; s < min(units, Config::num_stages); ++s) {
      copy_scales(ring + Plan::slots_bytes + s * Plan::scale_slot_bytes);
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t) copy_codes(ring + s * Plan::slot_bytes, t);
      next_weights();
    }
  }

  // The first units; of those of the first tile the weights are there if the guess was right.
  __device__ __forceinline__ void start() {
    ahead.begin();
    const int found = turn();
    int done = 0;
    if (guessed >= 0) {
      if (guessed == found) {
        done = units;
      } else {  // nothing of them may come later than what is right
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
      }
    }
#pragma unroll 1
    for (int s = 0; s < Config::num_stages; ++s) {
      const u32 to = ring + s * Plan::slot_bytes;
      copy_x(to);
      if (s >= done) copy_scales(ring + Plan::slots_bytes + s * Plan::scale_slot_bytes);
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t) {
        if (s >= done) copy_codes(to, t);
        if ((t + 1) % Plan::stage_tiles == 0) ptx::cp_async_commit();
      }
      step();
    }
  }

  // -- what warp_skinny_unit asks for, in its order; it counts units of one tile, the ring all --

  // x and scales of a unit, and its first codes.
  __device__ __forceinline__ void acquire(int) const {
    ptx::cp_async_wait<Plan::copies - 1>();
    __syncwarp();
  }
  // As those of a block of one tile are.
  __device__ __forceinline__ void fragments(u32 (&b)[Plan::columns][8][2], int) const {
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c) {
      const int row = min(8 * c + lane % 8, rows - 1);
      const u32 line = slot + Plan::x + row * Plan::x_row_bytes + lane / 8 * 16;
#pragma unroll
      for (int s = 0; s < 8; s += 2)
        ptx::ldmatrix_x4(b[c][s][0], b[c][s][1], b[c][s + 1][0], b[c][s + 1][1], line + s * 32);
    }
  }
  // Scales go to the slot that the unit before has left, x to the one whose fragments were taken.
  __device__ __forceinline__ void issue_scales(int) const {
    copy_scales(scale_slot == ring + Plan::slots_bytes
                    ? scale_slot + Config::num_stages * Plan::scale_slot_bytes
                    : scale_slot - Plan::scale_slot_bytes);
  }
  __device__ __forceinline__ void issue_x(int) const { copy_x(slot); }
  __device__ __forceinline__ u32 scale_pair(int, int t, int group) const {
    return ptx::load_shared_u32(scale_slot + (t * Plan::groups + group) * 32 + lane / 4 * 4);
  }
  __device__ __forceinline__ u32 zero_pair(int, int t, int group) const {
    return ptx::load_shared_u32(scale_slot + Plan::zeros + (t * Plan::groups + group) * 32 +
                                lane / 4 * 4);
  }

  // A unit is done, and all of the one that takes its slot was asked for.
  __device__ __forceinline__ void advance() {
    step();
    slot += Plan::slot_bytes;
    if (slot == ring + Plan::slots_bytes) slot = ring;
    scale_slot += Plan::scale_slot_bytes;
    if (scale_slot == ring + Plan::ring_bytes) scale_slot = ring + Plan::slots_bytes;
  }

  // Row tile `t` of the next unit's codes.
  __device__ __forceinline__ void copy_codes(u32 to, int t) const {
    if (!more) return;
    const char* piece = codes + static_cast<u64>(static_cast<u32>(min(t, last_tile))) *
                                    static_cast<u32>(groups * Plan::piece_bytes);
    const u32 target = to + t * Plan::piece_bytes + lane * 16;
#pragma unroll
    for (int part = 0; part < Plan::piece_bytes; part += 512)
      if (part + 512 <= Plan::piece_bytes || lane < 16)
        ptx::cp_async_streamed(target + part, piece + part);
  }

 private:
  __device__ __forceinline__ void aim(const WalkTile& tile) {
    last_tile = min(Config::tiles_n, (call.n + 15) / 16 - tile.row_tile) - 1;
    const i64 first = static_cast<i64>(tile.row_tile) * groups + warp, expert = tile.of.expert;
    codes = static_cast<const char*>(call.codes) + expert * experts.codes_bytes +
            first * Plan::piece_bytes + lane * 16;
    scales = static_cast<const char*>(call.scales) + expert * experts.scales_bytes +
             first * (Plan::groups * 32);
  }

  // To the next tile; its expert, or -1. Tiles of no expert end a list; nothing is read for them.
  __device__ __forceinline__ int turn() {
    WalkTile tile;
    more = units > 0 && ahead.next(tile) && tile.of.expert >= 0;
    if (!more) return -1;
    left = units;
    aim(tile);
    const int column = warp * Plan::unit_k + lane % chunks * 8;
    x = static_cast<const char*>(call.x) + column * 2;
    columns_left = call.k - column;
    rows_left = tile.of.count - lane / chunks;
    const u32 row_of_x = static_cast<u32>(tile.place) / static_cast<u32>(call.shared);
    const u32 begin = row_of_x * static_cast<u32>(call.x_row_stride / 8);
#pragma unroll
    for (int r = 0; r < rows_each; ++r) {
      const int row = min(lane / chunks + 2 * r, tile.of.count - 1);
      sixteens[r] = __shfl_sync(0xFFFFFFFFu, begin, row);
    }
    return tile.of.expert;
  }

  // On to the next unit.
  __device__ __forceinline__ void step() {
    if (!more) return;
    next_weights();
    x += Config::warps * Plan::unit_k * 2;
    columns_left -= Config::warps * Plan::unit_k;
    if (--left == 0) turn();
  }

  __device__ __forceinline__ void next_weights() {
    codes += Config::warps * Plan::piece_bytes;
    scales += Config::warps * Plan::groups * 32;
  }

  __device__ __forceinline__ void copy_x(u32 to) const {
    if (!more) return;
    const u32 target = to + Plan::x + lane / chunks * Plan::x_row_bytes + lane % chunks * 16;
    const u32 bytes = columns_left > 0 ? 16 : 0;
#pragma unroll
    for (int r = 0; r < rows_each; ++r)
      if (2 * r < rows_left)
        ptx::cp_async_16(target + 2 * r * Plan::x_row_bytes, x + static_cast<u64>(sixteens[r]) * 16,
                         bytes);
  }

  // 16 bytes of scales a lane, and of zero points where there are some.
  __device__ __forceinline__ void copy_scales(u32 to) const {
    if constexpr (Plan::groups > 0) {
      if (!more) return;
      constexpr int of_tile = Plan::groups * 2, all = Config::tiles_n * of_tile;
      const i64 tile_bytes = static_cast<i64>(groups) * (Plan::groups * 32);
#pragma unroll
      for (int c = 0; c < all; c += 32) {
        const int own = c + lane;
        if (own >= all) continue;
        const char* source =
            scales + min(own / of_tile, last_tile) * tile_bytes + own % of_tile * 16;
        ptx::cp_async_16(to + own * 16, source, 16);
        if constexpr (Config::has_zero_points)
          ptx::cp_async_16(to + Plan::zeros + own * 16,
                           source + (static_cast<const char*>(call.zero_points) -
                                     static_cast<const char*>(call.scales)),
                           16);
      }
    }
  }
};

// The codes in that ring: a slot is filled again as it is read.
template <class Of>
struct Weights<Walking<Of>> {
  using Config = Walking<Of>;
  using Plan = SkinnyPlan<Config>;
  static constexpr int tiles = Plan::stage_tiles;
  static constexpr bool lanes_own = Plan::bits % 4 == 0;

  const Operands<Config>& ring;
  CodeWords<Plan::bits> held[tiles][2];

  __device__ __forceinline__ explicit Weights(const Operands<Config>& ring_) : ring(ring_) {}

  __device__ __forceinline__ void open(int first) {
    const u32 lane = ring.lane;
    if (first > 0) {
      ptx::cp_async_wait<Plan::copies - 1>();
      if constexpr (!lanes_own) __syncwarp();
    }
    const u32 begin = ring.slot + TilePlanes<Plan::bits>::lane_offset(lane);
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      const u32 piece = begin + (first + j) * Plan::piece_bytes;
      thread_load_codes<Plan::bits>(held[j][0], piece, lane);
      thread_load_codes<Plan::bits>(held[j][1], piece + Plan::piece_bytes / 2, lane);
    }
    if constexpr (!lanes_own) __syncwarp();  // before another lane overwrites what this one read
#pragma unroll
    for (int j = 0; j < tiles; ++j) ring.copy_codes(ring.slot, first + j);
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ const CodeWords<Plan::bits>& codes_of(int t, int half) const {
    return held[t % tiles][half];
  }
  __device__ __forceinline__ void close(int) const {}
};

}  // namespace humming
