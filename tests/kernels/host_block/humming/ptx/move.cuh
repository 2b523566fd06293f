// Loads and stores of the kernels' own header, of host memory and of the block's.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

template <class T>
T aligned(const void* p) {
  if (reinterpret_cast<u64>(p) % sizeof(T)) std::abort();
  return host::from<T>(p);
}
template <class T>
void put(void* p, const T& v) {
  if (reinterpret_cast<u64>(p) % sizeof(T)) std::abort();
  std::memcpy(p, &v, sizeof v);
}
template <class T>
T in_shared(u32 address) {
  if (address % sizeof(T) || address + sizeof(T) > host::shared_memory.size()) std::abort();
  return host::from<T>(host::shared(address));
}
template <class T>
void into_shared(u32 address, const T& v) {
  if (address % sizeof(T) || address + sizeof(T) > host::shared_memory.size()) std::abort();
  std::memcpy(host::shared(address), &v, sizeof v);
}

inline Words4 load_global_streamed(const void* p) { return aligned<Words4>(p); }
inline Words4 load_global_words4(const void* p) { return aligned<Words4>(p); }
inline Words2 load_global_streamed_words2(const void* p) { return aligned<Words2>(p); }
inline u32 load_global_streamed_u32(const void* p) { return aligned<u32>(p); }
inline u16 load_global_u16(const void* p) { return aligned<u16>(p); }
inline u32 load_global_u32(const void* p) { return aligned<u32>(p); }
inline u32 load_global_word(const void* p) { return aligned<u32>(p); }
inline float load_global_f32(const void* p) { return aligned<float>(p); }
inline void store_global_u32(void* p, u32 v) { put(p, v); }
inline void store_global_words4(void* p, const Words4& v) { put(p, v); }
inline void store_global_words2(void* p, const Words2& v) { put(p, v); }
inline void store_global_u8(void* p, u32 v) { put(p, static_cast<uint8_t>(v)); }
inline void store_global_u16(void* p, u16 v) { put(p, v); }
inline Words4 load_shared_words4(u32 address) { return in_shared<Words4>(address); }
inline Words2 load_shared_words2(u32 address) { return in_shared<Words2>(address); }
inline u32 load_shared_u32(u32 address) { return in_shared<u32>(address); }
inline float load_shared_f32(u32 address) { return in_shared<float>(address); }
inline float2 load_shared_f32x2(u32 address) {
  return {in_shared<float>(address), in_shared<float>(address + 4)};
}
inline void store_shared_words4(u32 address, const Words4& v) { into_shared(address, v); }
inline void store_shared_u32(u32 address, u32 v) { into_shared(address, v); }
inline void store_shared_f32(u32 address, float v) { into_shared(address, v); }

}  // namespace humming::ptx
