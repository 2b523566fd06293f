// Eight neighbouring numbers of a row of x, in fp32, gathered and gated where that is asked for.
// Run by one thread.
// Reads -> writes: x in global memory -> registers.
// Source: own.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/quantize_input.cuh"

namespace humming {

template <class Config>
struct InputRow {
  using Input = typename Config::Input;
  const InputCall& call;
  const u16* row;

  __device__ __forceinline__ InputRow(const InputCall& call_, i64 number)
      : call(call_), row(static_cast<const u16*>(call_.x) + number * call_.x_row_stride) {}

  // Columns `first` .. first + 7; zero beyond k.
  __device__ __forceinline__ void eight(float (&v)[8], int first) const {
    plain(v, first, 0);
    if constexpr (Config::silu_and_mul != 0) {
      float up[8];
      plain(up, first, call.k);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = v[i] / (1.0f + expf(-v[i])) * up[i];
    }
  }

  __device__ __forceinline__ float one(int column) const {
    const int from = call.permutation == nullptr ? column : call.permutation[column];
    const float v = Input::widen(ptx::load_global_u16(row + from));
    if constexpr (Config::silu_and_mul == 0) return v;
    return v / (1.0f + expf(-v)) * Input::widen(ptx::load_global_u16(row + call.k + from));
  }

 private:
  __device__ __forceinline__ void plain(float (&v)[8], int first, int offset) const {
    if (call.aligned != 0 && first + 8 <= call.k) {
      const Words4 words = ptx::load_global_words4(row + offset + first);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        v[i] = Input::widen(static_cast<u16>(words.word[i / 2] >> (i % 2 * 16)));
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = 0.0f;
      if (first + i >= call.k) continue;
      const int from = call.permutation == nullptr ? first + i : call.permutation[first + i];
      v[i] = Input::widen(ptx::load_global_u16(row + offset + from));
    }
  }
};

}  // namespace humming
