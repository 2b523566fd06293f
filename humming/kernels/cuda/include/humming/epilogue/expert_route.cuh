// From a token's router logits to its experts and their weights.
// Run by a whole converged warp a token.
// Reads -> writes: logits [m, experts] -> ids int [m, top_k], weights fp32 [m, top_k].
// Source: own, as humming/moe/router.py says; of equal scores the lower number is chosen.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/expert_rows.cuh"

namespace humming {

enum class Scoring : int { softmax, sigmoid, chosen_softmax, chosen_sigmoid };

struct ExpertRoute {
  const void* logits;       // of the activation's type, or fp32
  const float* correction;  // [experts], or null
  int* ids;
  float* weights;
  int m, experts, top_k, wide;  // wide: logits are fp32
  int scoring, normalized, groups, top_groups, best_of_group;
  float scale;
};

struct Best {
  float value;
  int place;

  __device__ __forceinline__ void take(float other, int at) {
    if (other > value || (other == value && at < place)) value = other, place = at;
  }
};

// The best of all lanes, in all lanes.
__device__ __forceinline__ Best warp_best(Best own) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    own.take(__shfl_xor_sync(0xFFFFFFFFu, own.value, step),
             __shfl_xor_sync(0xFFFFFFFFu, own.place, step));
  return own;
}
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
  return v;
}
__device__ __forceinline__ float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }

constexpr float no_score = -1.0e38f;  // of what may not be chosen
constexpr float chosen = -2.0e38f;    // of what has been

// Leaves scores of the groups that may be chosen from; one lane a group at a time.
__device__ __forceinline__ void warp_keep_groups(float* choice, const ExpertRoute& call, int lane) {
  const int each = call.experts / call.groups;
  u32 kept[4] = {};
  float own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int group = lane + 32 * i;
    float first = no_score, second = no_score;
    if (group < call.groups)
      for (int e = 0; e < each; ++e) {
        const float v = choice[group * each + e];
        if (v > first) {
          second = first, first = v;
        } else if (v > second) {
          second = v;
        }
      }
    own[i] = group >= call.groups              ? no_score
             : call.best_of_group || each == 1 ? first
                                               : first + second;
  }
  for (int j = 0; j < call.top_groups; ++j) {
    Best best = {chosen, 1 << 30};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (lane + 32 * i < call.groups && !(kept[i] >> lane & 1)) best.take(own[i], lane + 32 * i);
    best = warp_best(best);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (best.place / 32 == i) kept[i] |= 1u << best.place % 32;
  }
  for (int e = lane; e < call.experts; e += 32) {
    const int group = e / each;
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (group / 32 == i) word = kept[i];
    if (!(word >> group % 32 & 1)) choice[e] = no_score;
  }
}

template <class Config>
__device__ __forceinline__ void warp_route(float* shared, const ExpertRoute& call) {
  using Activation = typename Config::Activation;
  const int lane = threadIdx.x % 32, token = static_cast<int>(grid_thread() / 32);
  if (token >= call.m) return;
  const Scoring scoring = static_cast<Scoring>(call.scoring);
  float* score = shared + threadIdx.x / 32 * 2 * call.experts;
  float* choice = score + call.experts;
  const i64 first = static_cast<i64>(token) * call.experts;

  float largest = no_score;
  for (int e = lane; e < call.experts; e += 32) {
    const float v =
        call.wide ? ptx::load_global_f32(static_cast<const float*>(call.logits) + first + e)
                  : Activation::widen(
                        ptx::load_global_u16(static_cast<const u16*>(call.logits) + first + e));
    score[e] = v;
    largest = fmaxf(largest, v);
  }
  if (scoring == Scoring::softmax) {
    largest = warp_best({largest, 0}).value;
    float sum = 0.0f;
    for (int e = lane; e < call.experts; e += 32) sum += score[e] = expf(score[e] - largest);
    sum = warp_sum(sum);
    for (int e = lane; e < call.experts; e += 32) score[e] /= sum;
  } else if (scoring == Scoring::sigmoid) {
    for (int e = lane; e < call.experts; e += 32) score[e] = sigmoid(score[e]);
  }
  for (int e = lane; e < call.experts; e += 32)
    choice[e] = score[e] + (call.correction == nullptr ? 0.0f : call.correction[e]);
  __syncwarp();
  if (call.groups > 1) {
    warp_keep_groups(choice, call, lane);
    __syncwarp();
  }

  float total = 0.0f, top = 0.0f;
  int own_id = 0;
  float own_score = 0.0f;
  for (int j = 0; j < call.top_k; ++j) {
    Best best = {chosen, 1 << 30};
    for (int e = lane; e < call.experts; e += 32) best.take(choice[e], e);
    best = warp_best(best);
    const int id = min(best.place, call.experts - 1);
    float value = score[id];
    if (j == 0) top = value;
    if (scoring == Scoring::chosen_softmax) value = expf(value - top);
    if (scoring == Scoring::chosen_sigmoid) value = sigmoid(value);
    total += value;
    if (lane == j % 32) own_id = id, own_score = value;
    __syncwarp();
    if (lane == id % 32) choice[id] = chosen;  // minus infinity: never again
    __syncwarp();
    if (j % 32 == 31 || j + 1 == call.top_k) {
      const int at = j / 32 * 32 + lane;
      if (at <= j) {
        call.ids[static_cast<i64>(token) * call.top_k + at] = own_id;
        call.weights[static_cast<i64>(token) * call.top_k + at] = own_score;
      }
    }
  }
  float factor = call.scale;
  if (scoring == Scoring::chosen_softmax) factor /= total;
  if (call.normalized && scoring <= Scoring::sigmoid) factor /= total + 1e-20f;
  __syncwarp();
  for (int j = lane; j < call.top_k; j += 32)
    call.weights[static_cast<i64>(token) * call.top_k + j] *= factor;
}

}  // namespace humming
