// Integer codes of 1 to 8 bits -> fragments of one m16n8k16 step, exact. Bit tricks on codes live
//   here.
// Run by one thread, on its own words of a 16x64 tile.
// Reads -> writes: registers; fields as in planes.cuh -> register a[i], low half = even k.
// Source: a code OR-ed into the mantissa of a power of two is that power plus the code; see Kim et
//   al., arXiv:2211.10017. Codes are stored as code + 2^(bits-1); what comes out is the code again.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/dequant/int4.cuh"
#include "humming/dequant/planes.cuh"

namespace humming {

// `Activation`'s type holds the codes with a power of two above them in its mantissa.
template <int bits_, class Activation>
struct PlacedIntegers {
  static constexpr int bits = bits_;
  static constexpr int center = 1 << (bits - 1);  // what a stored code is above its value
  static constexpr int mantissa = Activation::mantissa_bits;
  using At = Planes<bits>;

  // The bits of `v`, a positive whole number that the type holds.
  static __device__ constexpr u32 number(int v) {
    int exponent = 0;
    while (v >> (exponent + 1)) ++exponent;
    return static_cast<u32>(exponent + Activation::exponent_bias) << mantissa |
           (static_cast<u32>(v) << mantissa >> exponent & ((1u << mantissa) - 1));
  }

  // The mantissa's bit at which a register's code needs the fewest shifts.
  static __device__ constexpr int place(int step, int i) {
    int best = 0, least = 99;
    for (int p = 0; p + bits <= mantissa; ++p) {
      int shifts = 0;
      for (int plane = 0; plane < At::count; ++plane)
        shifts += At::bit(plane, step, i) != p + At::low_bit(plane);
      if (shifts < least) best = p, least = shifts;
    }
    return best;
  }

  // The code in a mantissa with its unit at bit `at`, over what `base` has.
  template <int step, int i, int at, int plane = 0>
  static __device__ __forceinline__ u32 over(u32 base, const u32 (&words)[bits]) {
    if constexpr (plane == At::count) {
      return base;
    } else {
      constexpr int low = at + At::low_bit(plane);
      const u32 word = moved<At::bit(plane, step, i), low>(words[At::word(plane, step, i)]);
      constexpr u32 mask = both(((1u << At::width(plane)) - 1) << low);
      return over<step, i, at, plane + 1>(ptx::and_or(word, mask, base), words);
    }
  }
};

template <int bits_, class Activation>
struct IntegerCodes : PlacedIntegers<bits_, Activation> {
  using Placed = PlacedIntegers<bits_, Activation>;
  using At = typename Placed::At;
  static constexpr int bits = bits_, center = Placed::center;
  // Codes of 4 bits may be multiplied with their bias on (`raw`), which one more product with x
  // takes away.
  static constexpr bool has_raw = bits == 4;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits]) {
    constexpr u32 unit = both(Placed::number(1)), minus = both(0x8000);
    if constexpr (bits <= Placed::mantissa) {
      constexpr int at = Placed::place(step, i), base = 1 << (Placed::mantissa - at);
      const u32 a = Placed::template over<step, i, at>(both(Placed::number(base)), words);
      return Activation::fma(a, unit, both(Placed::number(base + center)) | minus);
    } else {
      // The type holds 128 and 7 bits; the eighth says whether 128 or 256 is to be taken off.
      const u32 word = moved<At::bit(0, step, i), 0>(words[At::word(0, step, i)]);
      constexpr u32 base = both(Placed::number(128));
      return Activation::fma(ptx::and_or(word, both(0x7F), base), unit,
                             ptx::andnot_or(word, both(0x80), base | minus));
    }
  }
  static __device__ __forceinline__ void fragment(u32 (&a)[4], const u32 (&words)[bits], int step) {
    registers<IntegerCodes>(a, words, step);
  }

  // The codes of 4 bits with their bias, and the fragment whose product with x takes it away.
  static constexpr u32 negative_bias = Int4<Activation>::negative_bias;
  static constexpr int bias = Int4<Activation>::bias;
  static __device__ __forceinline__ void raw(u32 (&a)[4], const u32 (&words)[bits], int step) {
    static_assert(has_raw);
    Int4<Activation>::raw(a, words[step]);
  }
};

// The same codes as fp32, for any activation: fp16 holds any 8 bits beside 1024.
template <int bits_>
struct WideIntegers {
  using Placed = PlacedIntegers<bits_, Fp16>;
  static constexpr int bits = bits_, center = Placed::center;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits]) {
    return Placed::template over<step, i, 0>(both(Placed::number(1024)), words);
  }
  // v[i] is the even and the odd k of register i.
  static __device__ __forceinline__ void wide(float2 (&v)[4], const u32 (&words)[bits], int step) {
    constexpr int bias = 1024 + center;
    u32 a[4];
    registers<WideIntegers>(a, words, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i].x = ptx::widen_f16(static_cast<u16>(a[i])) - bias;
      v[i].y = ptx::widen_f16(static_cast<u16>(a[i] >> 16)) - bias;
    }
  }
};

}  // namespace humming
