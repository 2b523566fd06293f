"""How wgmma8 orders the products of codes that are put into bytes, run by a C++ compiler for one
thread: each unit's once, from registers that stay until tensor cores have read them, and slots of
the ring given back when they are done, and in time. Tensor cores multiply as late as they may."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from wgmma8_cases import PLAIN_WGMMA8, byte_problem

from humming.jit.compiler import find_compiler
from humming.jit.cuda.source import INCLUDE_DIR
from humming.spec.legality import wgmma8_smem_bytes

PRODUCT = """
#pragma once
#include <deque>
#include <set>
#include <stdexcept>
#include "humming/dequant/group_bytes.cuh"
#include "humming/ptx/move.cuh"
namespace humming {
struct Product { const u32* a; u32 was[4]; u64 x; int group; };
inline std::deque<Product> begun;
inline std::vector<Product> made;
inline int committed = 0;
inline void expect(bool holds, const char* what) { if (!holds) throw std::runtime_error(what); }
inline void finish(int pending) {
  while (!begun.empty() && begun.front().group < committed - pending) {
    Product p = begun.front();
    begun.pop_front();
    for (int i = 0; i < 4; ++i) expect(p.a[i] == p.was[i], "a register was overwritten");
    made.push_back(p);
  }
}
template <class Weights>
struct ByteProduct {
  using Sum = float;
  template <int keep, class D>
  static void add(D&, const u32 (&a)[4], u64 x) {
    static_assert(keep == 1);
    begun.push_back({a, {a[0], a[1], a[2], a[3]}, x, committed});
  }
};
namespace ptx {
inline void wgmma_fence() {}
inline void wgmma_commit() { ++committed; }
template <int pending> inline void wgmma_wait() { finish(pending); }
template <class T> inline void settle(T&) {}
}
}
"""
EPILOGUE = """
#pragma once
#include "humming/memory/wgmma8_plan.cuh"
namespace humming {
template <class Config> using Wgmma8Sums = float[Config::tiles_n][Config::block_m / 8][4];
}
"""
RING = """
#pragma once
#include "humming/dequant/byte_product.cuh"
namespace humming {
inline u32 noise(u32 a, u32 b, u32 c) {
  u32 v = a * 2654435761u ^ b * 40503u ^ c * 2246822519u;
  v ^= v >> 15, v *= 2246822519u, v ^= v >> 13;
  return v;
}
template <class Config>
struct Ring8Drain {
  u32 shared = 0;
  struct { u32 slot = 0; } place;
  int unit = 0, acquired = 0;
  std::set<int> held;

  void acquire() {
    expect(unit == acquired, "not the next unit"), ++acquired;
    expect(!held.count(unit - Config::num_stages), "waits for a slot that it has");
    held.insert(unit);
  }
  void next() { place.slot = ++unit % Config::num_stages; }
  static Words4 words_of(int unit, int t, int half) {
    Words4 v;
    for (u32 i = 0; i < 4; ++i) v.word[i] = noise(unit * 8 + t, half * 4 + i, 1);
    return v;
  }
  static u32 scales_of(int unit, int t, int step) {
    const u32 v = noise(unit * 8 + t, step, 2);
    return (90 + v % 38) << 7 | (90 + v / 64 % 38) << 23;
  }
  Words4 words(int t, int half) const {
    expect(held.count(unit), "codes of a unit that is not there");
    return words_of(unit, t, half);
  }
  u32 group_scales(int t, int step) const {
    expect(held.count(unit), "scales of a unit that is not there");
    return scales_of(unit, t, step);
  }
  u32 x_base(int) const { return unit * 4; }
  static u64 descriptor(u32 base, int step) { return base + step; }
  void release(u32 slot) {
    for (const Product& p : begun)
      expect(p.x / 4 % Config::num_stages != slot, "a slot is given back that is read");
    for (int u : held)
      if (u % Config::num_stages == int(slot)) {
        held.erase(u);
        return;
      }
    expect(false, "a slot is given back twice");
  }
};
}
"""
MAIN = """
#include <cstdio>
#include "humming/mainloop/wgmma8_products.cuh"
using namespace humming;
struct Own {
  MEMBERS
  using Codes = CODES;
  using Type = Codes::Type;
};
template <class Config>
void multiplied(int units) {
  using Plan = Wgmma8Plan<Config>;
  using Drain = Ring8Drain<Config>;
  host::shared_memory.assign(4096, 0);
  if constexpr (Plan::scaled_codes)
    for (u32 e = 0; e < Config::Codes::entries; ++e) {
      const Words2 entry = Config::Codes::entry(e);
      std::memcpy(host::shared(Plan::table + e * 8), &entry, 8);
    }
  begun.clear(), made.clear();
  Drain drain;
  static Wgmma8Sums<Config> sums;
  if constexpr (Plan::few) {
    group_multiply_few<Config>(sums, drain, units);
  } else {
    group_multiply_registers<Config>(sums, drain, units);
  }
  expect(begun.empty() && drain.held.empty() && drain.unit == units, "something is left");
  auto one = made.begin();
  for (int u = 0; u < units; ++u)
    for (int step = 0; step < 4; ++step)
      for (int t = 0; t < Config::tiles_n; ++t) {
        u32 a[4];
        const Words4 words = Drain::words_of(u, t, step / 2);
        if constexpr (Plan::scaled_codes) {
          Words2 of[2];
          for (int half = 0; half < 2; ++half) {
            const u32 pair = Drain::scales_of(u, t, step);
            of[half] = ptx::load_shared_words2(Config::Codes::place(Plan::table, pair, half));
          }
          Config::Codes::fragment(a, words.word, step % 2, of);
        } else if constexpr (Plan::raw) {
          Config::Codes::raw(a, words.word, step % 2);
        } else {
          Config::Codes::fragment(a, words.word, step % 2);
        }
        expect(one != made.end(), "a product is missing");
        expect(one->x == u64(u * 4 + step), "x of another step");
        for (int i = 0; i < 4; ++i) expect(one->was[i] == a[i], "other weights");
        ++one;
        if constexpr (Plan::raw) {
          expect(one->x == u64(u * 4 + step), "x of another step");
          for (u32 word : one->was) expect(word == Config::Codes::bias, "not the codes' offset");
          ++one;
        }
      }
  expect(one == made.end(), "a product too many");
}
int main() {
  try {
    for (int units : {1, 2, 3, 7, 16}) multiplied<Own>(units);
  } catch (const std::exception& wrong) {
    std::puts(wrong.what());
    return 1;
  }
}
"""
CODES = {
    "mxfp4-fp8e4m3": "ScaledFp4",
    "int4-fp8e4m3": "Int4AsE4m3",
    "int4-int8": "Int4AsInt8",
    "fp4e2m1-fp8e4m3": "Fp4AsE4m3",
}


def _program(format: str, block_m: int, tiles_n: int, num_stages: int, folder: Path) -> Path:
    config = replace(PLAIN_WGMMA8, block_m=block_m, tiles_n=tiles_n, num_stages=num_stages)
    problem = byte_problem(format)
    members = vars(config) | {
        "code_bits": 4,
        "group_size": 32 if problem.quant.weight.scale_dtype else 0,
        "x_group_size": 0,
        "smem_bytes": wgmma8_smem_bytes(config, problem),
        "grouped": 0,
    }
    text = " ".join(f"static constexpr int {name} = {value};" for name, value in members.items())
    for name, stub in (
        ("dequant/byte_product.cuh", PRODUCT),
        ("epilogue/wgmma8.cuh", EPILOGUE),
        ("memory/wgmma8_ring.cuh", RING),
    ):
        path = folder / "humming" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stub)
    (folder / "main.cpp").write_text(MAIN.replace("MEMBERS", text).replace("CODES", CODES[format]))
    shim = Path(__file__).with_name("host_block")
    command = [find_compiler().path, "-std=c++17", "-O0", "-w", f"-I{folder}", f"-I{shim}"]
    command += [f"-I{INCLUDE_DIR}", "main.cpp", "-o", "main"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    return folder / "main"


@pytest.mark.parametrize(
    ("format", "block_m", "tiles_n", "num_stages"),
    [
        ("mxfp4-fp8e4m3", 16, 1, 2),
        ("mxfp4-fp8e4m3", 32, 2, 5),
        ("mxfp4-fp8e4m3", 64, 2, 2),
        ("mxfp4-fp8e4m3", 256, 1, 3),
        ("int4-fp8e4m3", 16, 2, 3),
        ("int4-fp8e4m3", 64, 1, 2),
        ("int4-int8", 16, 1, 4),
        ("fp4e2m1-fp8e4m3", 128, 2, 4),
    ],
)
def test_each_product_is_made_once_while_its_operands_are_there(
    format, block_m, tiles_n, num_stages, tmp_path
):
    program = _program(format, block_m, tiles_n, num_stages, tmp_path)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
