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

  // The lowest bit that a code's unit may be at. A sum with the bias left on must not drown the
  // codes' own where the output has many bits: fp16 keeps it within 4 times the codes' range.
  static constexpr int room = mantissa < 8 || mantissa <= bits + 2 ? mantissa : bits + 2;
  static constexpr int least = mantissa - room;

  // The bit of the mantissa at which a register's code goes. Fields of 1, 2 and 4 bits stay where
  // they are up to a few shifts that they share; so do planes of one bit, whose neighbours keep
  // their distance.
  static __device__ constexpr int place(int step, int i) {
    if (At::count == 1 && bits <= room) {
      constexpr int span = bits <= room ? room / bits * bits : 1;
      return least + (At::bit(0, step, i) + 16 * span - least) % span;
    }
    if (bits == 3 && mantissa < 8) return i / 2 * 4;  // of four in a half word, two stay
    constexpr int most = mantissa - bits;
    if (At::count == 2 && At::width(1) == 1) return least + i < most ? least + i : most;
    return least;
  }

  // Codes of 3 bits are put together four a half word first, at every fourth bit: those of
  // registers `odd` and `odd` + 2, of two k steps.
  template <int steps, int odd>
  static __device__ __forceinline__ u32 whole(const u32 (&words)[bits]) {
    const u32 high = moved<2 * odd, 1>(words[steps]) & both(0x6666);
    return ptx::and_or(words[2] >> (2 * steps + odd), both(0x1111), high);
  }

  // The code in a mantissa with its unit at bit `at`, over what `base` has.
  template <int step, int i, int at, int plane = 0>
  static __device__ __forceinline__ u32 over(u32 base, const u32 (&words)[bits]) {
    if constexpr (plane == At::count) {
      return base;
    } else if constexpr (bits == 3) {
      constexpr int place = step % 2 * 8 + i / 2 * 4;
      const u32 word = moved<place, at>(whole<step / 2, i % 2>(words));
      return ptx::and_or(word, both(7u << at), base);
    } else {
      constexpr int low = at + At::low_bit(plane);
      const u32 word = moved<At::bit(plane, step, i), low>(words[At::word(plane, step, i)]);
      constexpr u32 mask = both(((1u << At::width(plane)) - 1) << low);
      return over<step, i, at, plane + 1>(ptx::and_or(word, mask, base), words);
    }
  }
};

// A power of two plus the stored code.
template <int bits_, class Activation>
struct RawIntegers {
  using Placed = PlacedIntegers<bits_, Activation>;
  static constexpr int bits = bits_;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits]) {
    constexpr int at = Placed::place(step, i), base = 1 << (Placed::mantissa - at);
    return Placed::template over<step, i, at>(both(Placed::number(base)), words);
  }
};

template <int bits_, class Activation>
struct IntegerCodes : PlacedIntegers<bits_, Activation> {
  using Placed = PlacedIntegers<bits_, Activation>;
  using At = typename Placed::At;
  static constexpr int bits = bits_, center = Placed::center;
  static constexpr bool is_float = false;
  static constexpr int lift = 0;
  // Codes may be multiplied with their bias on (`raw`), which one more product with x takes away.
  static constexpr bool has_raw = bits <= Placed::mantissa;
  // Whether that bias is the same in all registers.
  static constexpr bool even_bias = bits == 4;

  template <int step, int i>
  static __device__ __forceinline__ u32 one(const u32 (&words)[bits]) {
    constexpr u32 unit = both(Placed::number(1)), minus = both(0x8000);
    if constexpr (bits <= Placed::mantissa) {
      return Activation::fma(RawIntegers<bits, Activation>::template one<step, i>(words), unit,
                             negative_bias(step, i));
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

  static __device__ __forceinline__ void raw(u32 (&a)[4], const u32 (&words)[bits], int step) {
    static_assert(has_raw);
    registers<RawIntegers<bits, Activation>>(a, words, step);
  }
  // The register of the fragment whose product with x takes the bias away.
  static __device__ constexpr int bias(int step, int i) {
    return (1 << (Placed::mantissa - Placed::place(step, i))) + center;
  }
  static __device__ constexpr u32 negative_bias(int step, int i) {
    return both(Placed::number(bias(step, i)) | 0x8000);
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
