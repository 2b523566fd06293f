// Asynchronous copies of the kernels' own header, made at once.
#pragma once
#include "humming/ptx/move.cuh"

namespace humming::ptx {

inline void cp_async_16(u32 target, const void* source, u32 bytes) {
  Words4 v = {};
  if (bytes) v = aligned<Words4>(source);
  char kept[16] = {};
  std::memcpy(kept, &v, bytes);
  into_shared(target, host::from<Words4>(kept));
}
inline void cp_async_streamed(u32 target, const void* source) { cp_async_16(target, source, 16); }
inline void cp_async_16_if(bool wanted, u32 target, const void* source, u32 bytes) {
  if (wanted) cp_async_16(target, source, bytes);
}
inline void cp_async_4_if(bool wanted, u32 target, const void* source) {
  if (wanted) into_shared(target, aligned<u32>(source));
}
inline void cp_async_streamed_if(bool wanted, u32 target, const void* source) {
  if (wanted) cp_async_16(target, source, 16);
}
inline void cp_async_commit() {}
template <int pending>
void cp_async_wait() {}

}  // namespace humming::ptx
