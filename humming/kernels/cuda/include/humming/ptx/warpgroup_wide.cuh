// Warpgroup matrix instructions of m64nNk16, one a function, overloaded by N: an
//   accumulator of N / 8 columns of four registers. Waiting is warpgroup.cuh.
// Run by a warpgroup: four converged warps, the first a multiple of four.
// Reads -> writes: A fragment registers, B through a descriptor of shared memory -> accumulator
//   registers, asynchronously.
// Source: PTX ISA 9.0, wgmma (sm_90a). The macros only name registers: a list of so many is no
//   text to read.
#pragma once
#include "humming/ptx/types.cuh"

// clang-format off
#define HUMMING_D4(d, c) "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
#define HUMMING_D8(d, c) HUMMING_D4(d, c), HUMMING_D4(d, c + 1)
#define HUMMING_D32(d, c) \
  HUMMING_D8(d, c), HUMMING_D8(d, c + 2), HUMMING_D8(d, c + 4), HUMMING_D8(d, c + 6)
#define HUMMING_N0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define HUMMING_N16 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HUMMING_N32 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HUMMING_N48 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HUMMING_N64 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define HUMMING_N80 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define HUMMING_N96 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define HUMMING_N112 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define HUMMING_WGMMA(N, TYPES, LIST, A, ...) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES " {" LIST "}, " A ", 1, 1, 1, 0;" \
               : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define HUMMING_WGMMA_BOTH(N, LIST, A, ...) \
  __device__ __forceinline__ void wgmma_k16_bf16(float (&d)[N / 8][4], const u32 (&a)[4], u64 b) { \
    HUMMING_WGMMA(N, "bf16.bf16", LIST, A, __VA_ARGS__); \
  } \
  __device__ __forceinline__ void wgmma_k16_f16(float (&d)[N / 8][4], const u32 (&a)[4], u64 b) { \
    HUMMING_WGMMA(N, "f16.f16", LIST, A, __VA_ARGS__); \
  }

namespace humming::ptx {

HUMMING_WGMMA_BOTH(16, "%0,%1,%2,%3,%4,%5,%6,%7", "{%8,%9,%10,%11}, %12", HUMMING_D8(d, 0))
HUMMING_WGMMA_BOTH(24, "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11", "{%12,%13,%14,%15}, %16", HUMMING_D8(d, 0), HUMMING_D4(d, 2))
HUMMING_WGMMA_BOTH(32, HUMMING_N0, "{%16,%17,%18,%19}, %20", HUMMING_D8(d, 0), HUMMING_D8(d, 2))
HUMMING_WGMMA_BOTH(48, HUMMING_N0 ",%16,%17,%18,%19,%20,%21,%22,%23", "{%24,%25,%26,%27}, %28", HUMMING_D8(d, 0), HUMMING_D8(d, 2), HUMMING_D8(d, 4))
HUMMING_WGMMA_BOTH(64, HUMMING_N0 "," HUMMING_N16, "{%32,%33,%34,%35}, %36", HUMMING_D32(d, 0))
HUMMING_WGMMA_BOTH(80, HUMMING_N0 "," HUMMING_N16 ",%32,%33,%34,%35,%36,%37,%38,%39", "{%40,%41,%42,%43}, %44", HUMMING_D32(d, 0), HUMMING_D8(d, 8))
HUMMING_WGMMA_BOTH(96, HUMMING_N0 "," HUMMING_N16 "," HUMMING_N32, "{%48,%49,%50,%51}, %52", HUMMING_D32(d, 0), HUMMING_D8(d, 8), HUMMING_D8(d, 10))
HUMMING_WGMMA_BOTH(112, HUMMING_N0 "," HUMMING_N16 "," HUMMING_N32 ",%48,%49,%50,%51,%52,%53,%54,%55", "{%56,%57,%58,%59}, %60", HUMMING_D32(d, 0), HUMMING_D8(d, 8), HUMMING_D8(d, 10), HUMMING_D8(d, 12))
HUMMING_WGMMA_BOTH(128, HUMMING_N0 "," HUMMING_N16 "," HUMMING_N32 "," HUMMING_N48, "{%64,%65,%66,%67}, %68", HUMMING_D32(d, 0), HUMMING_D32(d, 8))
HUMMING_WGMMA_BOTH(160, HUMMING_N0 "," HUMMING_N16 "," HUMMING_N32 "," HUMMING_N48 "," HUMMING_N64, "{%80,%81,%82,%83}, %84", HUMMING_D32(d, 0), HUMMING_D32(d, 8), HUMMING_D8(d, 16), HUMMING_D8(d, 18))
HUMMING_WGMMA_BOTH(192, HUMMING_N0 "," HUMMING_N16 "," HUMMING_N32 "," HUMMING_N48 "," HUMMING_N64 "," HUMMING_N80, "{%96,%97,%98,%99}, %100", HUMMING_D32(d, 0), HUMMING_D32(d, 8), HUMMING_D32(d, 16))
HUMMING_WGMMA_BOTH(224, HUMMING_N0 "," HUMMING_N16 "," HUMMING_N32 "," HUMMING_N48 "," HUMMING_N64 "," HUMMING_N80 "," HUMMING_N96, "{%112,%113,%114,%115}, %116", HUMMING_D32(d, 0), HUMMING_D32(d, 8), HUMMING_D32(d, 16), HUMMING_D8(d, 24), HUMMING_D8(d, 26))
HUMMING_WGMMA_BOTH(256, HUMMING_N0 "," HUMMING_N16 "," HUMMING_N32 "," HUMMING_N48 "," HUMMING_N64 "," HUMMING_N80 "," HUMMING_N96 "," HUMMING_N112, "{%128,%129,%130,%131}, %132", HUMMING_D32(d, 0), HUMMING_D32(d, 8), HUMMING_D32(d, 16), HUMMING_D32(d, 24))

}  // namespace humming::ptx

#undef HUMMING_WGMMA_BOTH
#undef HUMMING_WGMMA
// clang-format on
