// The copy engine of Hopper: tensor copies into shared memory, and the transposing store
//   that wants no copy engine, one instruction a function.
// Run by one thread (copies); by a whole converged warp (stores of matrices).
// Reads -> writes: global -> shared memory, completing on a barrier; shared -> global memory, in
//   groups; registers -> shared memory.
// Source: PTX ISA 9.0, cp.async.bulk.tensor, mbarrier.arrive.expect_tx, stmatrix
//   (sm_90).
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

// What the driver encodes; a kernel takes it by value and never looks into it.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

}  // namespace humming

namespace humming::ptx {

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void mbarrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void tensor_copy(u32 shared_address, const TensorMap* map, int column,
                                            int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(shared_address),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// The same to every block of the cluster in `blocks`, a bit a rank, at the same place in each.
__device__ __forceinline__ void tensor_copy_multicast(u32 shared_address, const TensorMap* map,
                                                      int column, int row, u32 barrier,
                                                      u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}
// A tile of shared memory to where the map says; nothing is written beyond its matrix.
__device__ __forceinline__ void tensor_store(const TensorMap* map, u32 shared_address, int column,
                                             int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(column), "r"(row), "r"(shared_address)
      : "memory");
}
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last `pending` groups of this thread have been read, or written.
template <int pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
// Four 8x8 matrices of 16 bits, transposed: lane i's address is of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrix_x4_transposed(u32 address, u32 r0, u32 r1, u32 r2,
                                                           u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// Has `bytes`, a multiple of 16, brought from memory into L2.
__device__ __forceinline__ void bulk_prefetch(const void* global, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

}  // namespace humming::ptx
