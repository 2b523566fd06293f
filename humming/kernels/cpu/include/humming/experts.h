// The products of a mixture's experts: each expert's rows are brought together, multiplied by the
//   dense kernel, and put where they belong.
// Run by the calling thread, which shares each product with the pool.
// Reads and writes what ExpertsArgs names.
// Technique: a counting sort keeps the rows of an expert in their order, so a row's result does not
//   depend on the others.
#pragma once

#include "humming/experts_args.h"
#include "humming/gemm.h"

namespace humming {

constexpr int64_t kRowsAtOnce = 256;  // of an expert: bounds the workspace, not the batch

template <class Config>
struct ExpertsRoom {
  using In = typename Config::Activation::Stored;
  using Out = typename Config::Output::Stored;
  int64_t order, ends, x, out, gemm, bytes;  // where each part begins

  ExpertsRoom(int64_t rows, int64_t experts, int64_t n, int64_t k, int64_t threads) {
    const int64_t some = least(rows, kRowsAtOnce);
    order = 0;
    ends = lines(rows * 4);
    x = ends + lines(experts * 8);
    out = x + lines(some * k * (int64_t)sizeof(In));
    gemm = out + lines(some * n * (int64_t)sizeof(Out));
    int64_t most_bytes = 0;  // a smaller product may want more: shares of a blocked one
    for (int64_t m = some; m > 0; m /= 2) {
      most_bytes = most(most_bytes, workspace_bytes<Config>(m, n, k, threads));
    }
    bytes = gemm + lines(most_bytes) + kLine;
  }
  static int64_t lines(int64_t size) { return ceil_div(size, kLine) * kLine; }
};

template <class Config>
int64_t experts_workspace_bytes(int64_t rows, int64_t experts, int64_t n, int64_t k,
                                int64_t threads) {
  return ExpertsRoom<Config>(rows, experts, n, k, threads).bytes;
}

// Rows [begin, end) of the order belong to one expert.
struct ExpertsRows {
  const int32_t* order;  // or null: the rows themselves
  int64_t begin, end;
};

template <class Config>
struct ExpertsCall {
  using In = typename Config::Activation::Stored;
  using Out = typename Config::Output::Stored;
  const ExpertsArgs& a;
  char* room;
  ExpertsRoom<Config> plan;

  const In* x_row(int64_t row) const { return (const In*)a.x + row / a.rows_of_x * a.ldx; }
  Out* out_row(int64_t row) const { return (Out*)a.out + row * a.ldo; }

  // The dense product's arguments for `expert`, without its rows.
  GemmArgs of_expert(int64_t expert) const {
    const PackedWeight<Config> w = {a.codes, a.scales, a.zero_points, a.n, a.k};
    const int64_t groups = w.panels() * w.groups() * kLanes;
    GemmArgs args = {};
    args.codes = a.codes + expert * w.panels() * w.lines() * kLanes;
    args.scales = a.scales ? a.scales + expert * groups : nullptr;
    args.zero_points = a.zero_points ? a.zero_points + expert * groups : nullptr;
    args.row_scales = a.row_scales ? a.row_scales + expert * w.panels() * kLanes : nullptr;
    args.permutation = a.permutation ? a.permutation + expert * a.k : nullptr;
    args.bias = a.bias ? a.bias + expert * a.n : nullptr;
    args.workspace = room + plan.gemm;
    args.workspace_bytes = plan.bytes - kLine - plan.gemm;
    args.parallel_for = a.parallel_for;
    args.n = a.n, args.k = a.k, args.threads = a.threads;
    return args;
  }

  Status multiply(int64_t expert, const ExpertsRows& rows) const {
    GemmArgs args = of_expert(expert);
    for (int64_t first = rows.begin; first < rows.end; first += kRowsAtOnce) {
      const int64_t count = least(kRowsAtOnce, rows.end - first);
      const int32_t* order = rows.order ? rows.order + first : nullptr;
      const bool in_place = !order || count == 1;
      args.m = count;
      if (in_place) {
        const int64_t row = order ? order[0] : first;
        args.x = x_row(row), args.ldx = most(a.ldx, a.k);
        args.out = out_row(row), args.ldo = most(a.ldo, a.n);
      } else {
        gather(order, count);
        args.x = room + plan.x, args.ldx = a.k;
        args.out = room + plan.out, args.ldo = a.n;
      }
      const Status status = gemm<Config>(args);
      if (status != kOk) return status;
      if (!in_place) scatter(order, count);
    }
    return kOk;
  }

  void gather(const int32_t* order, int64_t count) const {
    In* to = (In*)(room + plan.x);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * a.k, x_row(order[i]), a.k * sizeof(In));
    }
  }
  void scatter(const int32_t* order, int64_t count) const {
    const Out* from = (const Out*)(room + plan.out);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out_row(order[i]), from + i * a.n, a.n * sizeof(Out));
    }
  }

  // The expert of a row of out, counted from the first one here; -1 where it is not here.
  int64_t expert_of(int64_t row) const {
    const int64_t expert = a.groups[row] - a.first;
    return expert >= 0 && expert < a.experts ? expert : -1;
  }

  // Sorts the rows by their experts, and gives where each one's rows end; rows of no expert here
  // become zero.
  const int64_t* sort() const {
    int32_t* order = (int32_t*)(room + plan.order);
    int64_t* ends = (int64_t*)(room + plan.ends);
    std::memset(ends, 0, a.experts * sizeof(int64_t));
    for (int64_t row = 0; row < a.rows; ++row) {
      const int64_t expert = expert_of(row);
      if (expert >= 0) {
        ++ends[expert];
      } else {
        std::memset((void*)out_row(row), 0, a.n * sizeof(Out));
      }
    }
    for (int64_t e = 0, begin = 0; e < a.experts; ++e) {  // for now, where they begin
      const int64_t count = ends[e];
      ends[e] = begin;
      begin += count;
    }
    for (int64_t row = 0; row < a.rows; ++row) {
      const int64_t expert = expert_of(row);
      if (expert >= 0) order[ends[expert]++] = (int32_t)row;
    }
    return ends;
  }
};

// The rows of expert `e`; `ends` where rows were sorted.
inline ExpertsRows rows_of(const ExpertsArgs& a, int64_t e, const int32_t* order,
                           const int64_t* ends) {
  if (a.grouping == kIndexed) return {order, e ? ends[e - 1] : 0, ends[e]};
  if (a.grouping == kContiguous) {
    return {nullptr, most(0, a.groups[e]), least(a.groups[e + 1], a.rows)};
  }
  const int64_t count = most(0, least(a.groups[e], a.capacity));
  return {nullptr, e * a.capacity, e * a.capacity + count};
}

template <class Config>
Status experts(const ExpertsArgs& a) {
  if (a.rows < 0 || a.experts < 1 || a.n < 1 || a.k < 1 || a.threads < 1 || a.rows_of_x < 1) {
    return kBadShape;
  }
  if (a.rows == 0) return kOk;
  if (!a.x || !a.out || !a.groups) return kNullPointer;
  const ExpertsRoom<Config> plan(a.rows, a.experts, a.n, a.k, a.threads);
  if (a.workspace_bytes < plan.bytes || !a.workspace) return kWorkspaceTooSmall;
  char* room = (char*)(((uintptr_t)a.workspace + kLine - 1) / kLine * kLine);
  const ExpertsCall<Config> call = {a, room, plan};
  const int64_t* ends = a.grouping == kIndexed ? call.sort() : nullptr;
  for (int64_t e = 0; e < a.experts; ++e) {
    const Status status =
        call.multiply(e, rows_of(a, e, (const int32_t*)(room + plan.order), ends));
    if (status != kOk) return status;
  }
  return kOk;
}

}  // namespace humming
