// Stores of quantized rows of x: bytes, pairs of 4-bit codes, or numbers of 16 bits.
// Run by whole converged warps.
// Reads -> writes: eight neighbouring numbers on the codes' grid, and scales -> global memory.
// Source: own.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/dequant/input_codes.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/quantize_input.cuh"

namespace humming {

// bytes: a code each. nibbles: of 32 columns byte i is column i, and column 16 + i in its high half;
// in groups of 16 of those the same with 8 + i, and scales of rows come after those of groups.
// numbers: code times scale in the input's type.
enum class InputOutput { bytes, nibbles, numbers };

template <class Config>
struct InputOutputRow {
  // Where tensor cores take scales of 16 columns along, those are packed together.
  static constexpr bool in_sixteens = Config::group_size == 16;
  char* codes;
  float* scales;  // of this row in the first group
  i64 scales_pitch;

  __device__ __forceinline__ InputOutputRow(const InputCall& call, i64 row)
      : codes(static_cast<char*>(call.codes) + row * call.codes_row_bytes),
        scales(call.scales + row),
        scales_pitch(call.scales_pitch) {}

  __device__ __forceinline__ void scale(int group, float v) const {
    if constexpr (Config::output != InputOutput::numbers)
      ptx::store_global_u32(scales + group * scales_pitch, __float_as_uint(v));
  }

  // Columns 8 * chunk .. + 7; `here`: they are in the row as it is stored.
  __device__ __forceinline__ void eight(const float (&v)[8], int chunk, bool here,
                                        float scale) const {
    if constexpr (Config::output == InputOutput::numbers) {
      Words4 words;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words.word[i] = Config::Input::pack(v[2 * i] * scale, v[2 * i + 1] * scale);
      if (here) ptx::store_global_words4(codes + chunk * 16, words);
    } else if constexpr (Config::output == InputOutput::bytes) {
      const float low[4] = {v[0], v[1], v[2], v[3]}, high[4] = {v[4], v[5], v[6], v[7]};
      const Words2 words = {{Config::Carrier::bytes(low), Config::Carrier::bytes(high)}};
      if (here) ptx::store_global_words2(codes + chunk * 8, words);
    } else {
      u32 word[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < 8; ++i) word[i / 4] |= Config::Codes::nibble(v[i]) << (i % 4 * 8);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        word[i] |= __shfl_xor_sync(0xFFFFFFFFu, word[i], in_sixteens ? 1 : 2) << 4;
      const int place = in_sixteens ? chunk / 2 : chunk / 4 * 2 + chunk % 2;
      if (here && (in_sixteens ? chunk % 2 == 0 : chunk % 4 < 2))
        ptx::store_global_words2(codes + place * 8, {{word[0], word[1]}});
    }
  }

  // One column, where groups are not made of eights.
  __device__ __forceinline__ void one(float v, int column, float scale) const {
    if constexpr (Config::output == InputOutput::numbers) {
      const u32 pair = Config::Input::pack(v * scale, 0.0f);
      ptx::store_global_u16(codes + column * 2, static_cast<u16>(pair));
    } else {
      const float four[4] = {v, 0.0f, 0.0f, 0.0f};
      ptx::store_global_u8(codes + column, Config::Carrier::bytes(four));
    }
  }
};

}  // namespace humming
