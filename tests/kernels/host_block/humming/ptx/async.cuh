// Asynchronous copies of the kernels' own header: each is made when its thread waits for its group,
// and not before. Barriers in shared memory are no business of these tests.
#pragma once
#include "humming/ptx/move.cuh"

namespace humming::ptx {

inline void copy_later(u32 target, const void* source, u32 bytes, int size) {
  if (target % size || reinterpret_cast<u64>(source) % size || (bytes && bytes != size))
    std::abort();
  auto& own = *host::fibers[host::current];
  own.copies.push_back({target, bytes ? source : nullptr, size, own.groups});
}
inline void cp_async_16(u32 target, const void* source, u32 bytes) {
  copy_later(target, source, bytes, 16);
}
inline void cp_async_streamed(u32 target, const void* source) { cp_async_16(target, source, 16); }
inline void cp_async_16_if(bool wanted, u32 target, const void* source, u32 bytes) {
  if (wanted) cp_async_16(target, source, bytes);
}
inline void cp_async_4_if(bool wanted, u32 target, const void* source) {
  if (wanted) copy_later(target, source, 4, 4);
}
inline void cp_async_streamed_if(bool wanted, u32 target, const void* source) {
  if (wanted) cp_async_16(target, source, 16);
}
inline void cp_async_commit() { ++host::fibers[host::current]->groups; }
template <int pending>
void cp_async_wait() {
  auto& own = *host::fibers[host::current];
  std::vector<host::Copy> later;
  for (const host::Copy& copy : own.copies) {
    if (copy.group >= own.groups - pending) {
      later.push_back(copy);
      continue;
    }
    char bytes[16] = {};
    if (copy.source) std::memcpy(bytes, copy.source, copy.size);
    if (copy.target + copy.size > host::shared_memory.size()) std::abort();
    std::memcpy(host::shared(copy.target), bytes, copy.size);
  }
  own.copies = later;
}
inline void cp_async_arrive(u32) { std::abort(); }
inline void mbarrier_init(u32, u32) { std::abort(); }
inline bool mbarrier_test(u32, u32) { return true; }
inline bool mbarrier_try(u32, u32) { return true; }

}  // namespace humming::ptx
