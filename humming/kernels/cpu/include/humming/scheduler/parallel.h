// How work is cut into parts and handed to threads; the pool itself is pool.cpp.j2.
// Run by the calling thread, which takes part in the work.
// Reads and writes nothing itself; a part's work must not depend on which thread runs it.
// Technique: none.
#pragma once

#include "humming/static_for.h"

namespace humming {

using Part = void (*)(void* context, int64_t part);
// Runs part(context, 0) .. part(context, parts - 1) on up to `threads` threads and returns when all
// are done.
using ParallelFor = void (*)(Part part, void* context, int64_t parts, int64_t threads);

struct Workers {
  ParallelFor parallel_for;
  int64_t threads;

  // body(part) for every part; the pool is not touched where one thread or one part is enough.
  template <class F>
  void run(int64_t parts, F&& body) const {
    if (threads <= 1 || parts <= 1 || !parallel_for) {
      for (int64_t part = 0; part < parts; ++part) body(part);
      return;
    }
    using Body = std::remove_reference_t<F>;
    parallel_for([](void* context, int64_t part) { (*(Body*)context)(part); }, (void*)&body, parts,
                 threads);
  }
};

struct Range {
  int64_t begin, end;
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The `part`-th of `parts` nearly equal pieces of [0, count).
constexpr Range piece(int64_t count, int64_t part, int64_t parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

}  // namespace humming
