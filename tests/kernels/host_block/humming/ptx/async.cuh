// Asynchronous copies of the kernels' own header: each is made when its thread waits for its group, or
// when some thread waits for a barrier that is not told yet, and not before.
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
    host::make(copy);
  }
  own.copies = later;
}
inline void cp_async_arrive(u32 barrier) {
  auto& own = *host::fibers[host::current];
  own.copies.push_back({barrier, nullptr, 0, own.groups});
}
inline void mbarrier_init(u32 barrier, u32 arrivals) {
  const int count = static_cast<int>(arrivals);
  host::phases[barrier] = {count, count, 0};
}
inline void fence_barrier_init() {}
inline bool mbarrier_try(u32 barrier, u32 parity) {
  const auto done = [=] { return host::phases.at(barrier).number % 2 != static_cast<int>(parity); };
  if (done()) return true;
  host::make_all();
  if (!done()) host::yield();
  return done();
}
inline bool mbarrier_test(u32 barrier, u32 parity) { return mbarrier_try(barrier, parity); }

}  // namespace humming::ptx
