// The rules of humming/spec/legality/dequantize.py that a compiler can check, by the same names.
// Run by nobody; checked when the config is compiled.
// Reads -> writes: nothing.
// Source: own.
#pragma once

namespace humming {

template <class Config>
struct DequantizeRules {
  static_assert(1 <= Config::warps && Config::warps <= 16, "dequantize_warps_range");
  static_assert(1 <= Config::unroll && Config::unroll <= 8, "dequantize_unroll_range");
#if defined(__CUDA_ARCH__)
  static_assert(__CUDA_ARCH__ >= Config::Activation::least_arch, "dequantize_bf16_device");
#endif
};

}  // namespace humming
