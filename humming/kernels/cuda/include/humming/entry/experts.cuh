// The entries of the kernels around grouped products: their signatures.
// Run by sort, tiles: the only block; the others, all threads of the grid.
// Reads -> writes: as scheduler/expert_rows.cuh and epilogue/expert_activation.cuh say.
// Source: own. Config is the rendered block of constants that includes this.
#pragma once
#include "humming/ptx/grid.cuh"

namespace humming {

// Kernels of a layer follow each other in short time: each may be launched before the one before it
// has ended, and waits for it here.
__device__ __forceinline__ void follow() {
#if __CUDA_ARCH__ >= 900
  ptx::grid_dependency_wait();
  ptx::grid_dependency_release();
#endif
}

}  // namespace humming

extern "C" __global__ void __launch_bounds__(1024)
    humming_experts_sort(const int* ids, int* order, int* offsets, void* tiles_a, void* tiles_b,
                         int* rows_a, int* rows_b, int block_m_a, int block_m_b, int most_a,
                         int most_b, int rows, int experts, int first) {
  extern __shared__ int shared_words[];
  humming::follow();
  const humming::ExpertSort call = {ids,
                                    order,
                                    offsets,
                                    {static_cast<int4*>(tiles_a), static_cast<int4*>(tiles_b)},
                                    {rows_a, rows_b},
                                    {block_m_a, block_m_b},
                                    {most_a, most_b},
                                    rows,
                                    experts,
                                    first};
  humming::block_sort_experts(shared_words, call);
}

extern "C" __global__ void __launch_bounds__(1024)
    humming_experts_tiles(const int* groups, const int* order, void* tiles, int* rows_of_tiles,
                          int block_m, int most, int experts, int rows, int capacity, int sorted,
                          int masked) {
  extern __shared__ int shared_words[];
  humming::follow();
  const humming::ExpertTiles call = {groups,        order,   static_cast<int4*>(tiles),
                                     rows_of_tiles, block_m, most,
                                     experts,       rows,    capacity,
                                     sorted,        masked};
  humming::block_list_experts(shared_words, call);
}

extern "C" __global__ void __launch_bounds__(256)
    humming_experts_activate(const void* projected, void* out, long long rows, int width,
                             float alpha, float limit) {
  humming::follow();
  humming::thread_activate<humming::Config>(projected, out, rows, width, alpha, limit);
}

extern "C" __global__ void __launch_bounds__(256)
    humming_experts_combine(const void* parts, const float* weights, void* out, long long m,
                            int top_k, int n) {
  humming::follow();
  humming::thread_combine<humming::Config>(parts, weights, out, m, top_k, n);
}

extern "C" __global__ void __launch_bounds__(128)
    humming_experts_route(const void* logits, const float* correction, int* ids, float* weights,
                          int m, int experts, int top_k, int wide, int scoring, int normalized,
                          int groups, int top_groups, int best_of_group, float scale) {
  extern __shared__ int shared_words[];
  humming::follow();
  const humming::ExpertRoute call = {logits,  correction, ids,           weights, m,
                                     experts, top_k,      wide,          scoring, normalized,
                                     groups,  top_groups, best_of_group, scale};
  humming::warp_route<humming::Config>(reinterpret_cast<float*>(shared_words), call);
}
