// Warpgroup matrix instructions of m64nNk32, bytes by bytes, one a function, overloaded by N: an
//   accumulator of N / 8 columns of four registers, begun anew where `keep` is 0. Waiting is
//   warpgroup.cuh.
// Run by a warpgroup: four converged warps, the first a multiple of four.
// Reads -> writes: A fragment registers or A through a descriptor of shared memory, B through one ->
//   accumulator registers, asynchronously.
// Source: PTX ISA 9.0, wgmma (sm_90a). The macros only name registers: a list of so many is no
//   text to read.
#pragma once
#include "humming/ptx/types.cuh"

// clang-format off
#define HUMMING_C4(r, d, c) r(d[c][0]), r(d[c][1]), r(d[c][2]), r(d[c][3])
#define HUMMING_C8(r, d, c) HUMMING_C4(r, d, c), HUMMING_C4(r, d, c + 1)
#define HUMMING_C32(r, d, c) \
  HUMMING_C8(r, d, c), HUMMING_C8(r, d, c + 2), HUMMING_C8(r, d, c + 4), HUMMING_C8(r, d, c + 6)
#define HUMMING_B0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define HUMMING_B16 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HUMMING_B32 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HUMMING_B48 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HUMMING_B64 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define HUMMING_B80 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define HUMMING_B96 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define HUMMING_B112 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define HUMMING_BYTES(N, TYPES, LIST, A, KEEP, TAIL, INPUTS, ...) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32." TYPES " {" LIST "}, " A ", " KEEP TAIL ";" \
               : __VA_ARGS__ : INPUTS)
#define HUMMING_BY_REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(keep)
#define HUMMING_BY_DESCRIPTOR "l"(a), "l"(b), "n"(keep)
#define HUMMING_BYTES_OF(N, LIST, RA, RK, SA, SK, D) \
  template <int keep> \
  __device__ __forceinline__ void wgmma_k32_e4m3(float (&d)[N / 8][4], const u32 (&a)[4], u64 b) { \
    HUMMING_BYTES(N, "f32.e4m3.e4m3", LIST, RA, RK, ", 1, 1", HUMMING_BY_REGISTERS, D("+f")); \
  } \
  template <int keep> \
  __device__ __forceinline__ void wgmma_k32_e5m2(float (&d)[N / 8][4], const u32 (&a)[4], u64 b) { \
    HUMMING_BYTES(N, "f32.e5m2.e4m3", LIST, RA, RK, ", 1, 1", HUMMING_BY_REGISTERS, D("+f")); \
  } \
  template <int keep> \
  __device__ __forceinline__ void wgmma_k32_s8(int (&d)[N / 8][4], const u32 (&a)[4], u64 b) { \
    HUMMING_BYTES(N, "s32.s8.s8", LIST, RA, RK, "", HUMMING_BY_REGISTERS, D("+r")); \
  } \
  template <int keep> \
  __device__ __forceinline__ void wgmma_k32_e4m3(float (&d)[N / 8][4], u64 a, u64 b) { \
    HUMMING_BYTES(N, "f32.e4m3.e4m3", LIST, SA, SK, ", 1, 1", HUMMING_BY_DESCRIPTOR, D("+f")); \
  } \
  template <int keep> \
  __device__ __forceinline__ void wgmma_k32_s8(int (&d)[N / 8][4], u64 a, u64 b) { \
    HUMMING_BYTES(N, "s32.s8.s8", LIST, SA, SK, "", HUMMING_BY_DESCRIPTOR, D("+r")); \
  }
#define HUMMING_D_16(r) HUMMING_C8(r, d, 0)
#define HUMMING_D_24(r) HUMMING_C8(r, d, 0), HUMMING_C4(r, d, 2)
#define HUMMING_D_32(r) HUMMING_C8(r, d, 0), HUMMING_C8(r, d, 2)
#define HUMMING_D_48(r) HUMMING_C8(r, d, 0), HUMMING_C8(r, d, 2), HUMMING_C8(r, d, 4)
#define HUMMING_D_64(r) HUMMING_C32(r, d, 0)
#define HUMMING_D_80(r) HUMMING_C32(r, d, 0), HUMMING_C8(r, d, 8)
#define HUMMING_D_96(r) HUMMING_C32(r, d, 0), HUMMING_C8(r, d, 8), HUMMING_C8(r, d, 10)
#define HUMMING_D_112(r) HUMMING_C32(r, d, 0), HUMMING_C8(r, d, 8), HUMMING_C8(r, d, 10), HUMMING_C8(r, d, 12)
#define HUMMING_D_128(r) HUMMING_C32(r, d, 0), HUMMING_C32(r, d, 8)
#define HUMMING_D_160(r) HUMMING_C32(r, d, 0), HUMMING_C32(r, d, 8), HUMMING_C8(r, d, 16), HUMMING_C8(r, d, 18)
#define HUMMING_D_192(r) HUMMING_C32(r, d, 0), HUMMING_C32(r, d, 8), HUMMING_C32(r, d, 16)
#define HUMMING_D_224(r) HUMMING_C32(r, d, 0), HUMMING_C32(r, d, 8), HUMMING_C32(r, d, 16), HUMMING_C8(r, d, 24), HUMMING_C8(r, d, 26)
#define HUMMING_D_256(r) HUMMING_C32(r, d, 0), HUMMING_C32(r, d, 8), HUMMING_C32(r, d, 16), HUMMING_C32(r, d, 24)

namespace humming::ptx {

HUMMING_BYTES_OF(16, "%0,%1,%2,%3,%4,%5,%6,%7", "{%8,%9,%10,%11}, %12", "%13", "%8, %9", "%10", HUMMING_D_16)
HUMMING_BYTES_OF(24, "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11", "{%12,%13,%14,%15}, %16", "%17", "%12, %13", "%14", HUMMING_D_24)
HUMMING_BYTES_OF(32, HUMMING_B0, "{%16,%17,%18,%19}, %20", "%21", "%16, %17", "%18", HUMMING_D_32)
HUMMING_BYTES_OF(48, HUMMING_B0 ",%16,%17,%18,%19,%20,%21,%22,%23", "{%24,%25,%26,%27}, %28", "%29", "%24, %25", "%26", HUMMING_D_48)
HUMMING_BYTES_OF(64, HUMMING_B0 "," HUMMING_B16, "{%32,%33,%34,%35}, %36", "%37", "%32, %33", "%34", HUMMING_D_64)
HUMMING_BYTES_OF(80, HUMMING_B0 "," HUMMING_B16 ",%32,%33,%34,%35,%36,%37,%38,%39", "{%40,%41,%42,%43}, %44", "%45", "%40, %41", "%42", HUMMING_D_80)
HUMMING_BYTES_OF(96, HUMMING_B0 "," HUMMING_B16 "," HUMMING_B32, "{%48,%49,%50,%51}, %52", "%53", "%48, %49", "%50", HUMMING_D_96)
HUMMING_BYTES_OF(112, HUMMING_B0 "," HUMMING_B16 "," HUMMING_B32 ",%48,%49,%50,%51,%52,%53,%54,%55", "{%56,%57,%58,%59}, %60", "%61", "%56, %57", "%58", HUMMING_D_112)
HUMMING_BYTES_OF(128, HUMMING_B0 "," HUMMING_B16 "," HUMMING_B32 "," HUMMING_B48, "{%64,%65,%66,%67}, %68", "%69", "%64, %65", "%66", HUMMING_D_128)
HUMMING_BYTES_OF(160, HUMMING_B0 "," HUMMING_B16 "," HUMMING_B32 "," HUMMING_B48 "," HUMMING_B64, "{%80,%81,%82,%83}, %84", "%85", "%80, %81", "%82", HUMMING_D_160)
HUMMING_BYTES_OF(192, HUMMING_B0 "," HUMMING_B16 "," HUMMING_B32 "," HUMMING_B48 "," HUMMING_B64 "," HUMMING_B80, "{%96,%97,%98,%99}, %100", "%101", "%96, %97", "%98", HUMMING_D_192)
HUMMING_BYTES_OF(224, HUMMING_B0 "," HUMMING_B16 "," HUMMING_B32 "," HUMMING_B48 "," HUMMING_B64 "," HUMMING_B80 "," HUMMING_B96, "{%112,%113,%114,%115}, %116", "%117", "%112, %113", "%114", HUMMING_D_224)
HUMMING_BYTES_OF(256, HUMMING_B0 "," HUMMING_B16 "," HUMMING_B32 "," HUMMING_B48 "," HUMMING_B64 "," HUMMING_B80 "," HUMMING_B96 "," HUMMING_B112, "{%128,%129,%130,%131}, %132", "%133", "%128, %129", "%130", HUMMING_D_256)

}  // namespace humming::ptx

#undef HUMMING_BYTES_OF
#undef HUMMING_BYTES
#undef HUMMING_BY_REGISTERS
#undef HUMMING_BY_DESCRIPTOR
// clang-format on
