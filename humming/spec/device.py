"""Device: identity and limits of what runs a kernel, CPUs too. Finding the devices of this machine
is jit/detect.py."""

from __future__ import annotations

from dataclasses import dataclass

from humming.spec.canonical import content_hash, plain

CODE_PATH_FLAGS: dict[str, tuple[str, ...]] = {
    "generic": (),
    "avx2": ("avx2", "f16c", "fma"),
    "avx_vnni": ("avx2", "avx_vnni", "f16c", "fma"),
    "avx512": ("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "f16c", "fma"),
    "avx512_vnni": (
        "avx2",
        "avx512_vnni",
        "avx512bw",
        "avx512dq",
        "avx512f",
        "avx512vl",
        "f16c",
        "fma",
    ),
    "avx512_bf16": (
        "avx2",
        "avx512_bf16",
        "avx512bw",
        "avx512dq",
        "avx512f",
        "avx512vl",
        "f16c",
        "fma",
    ),
}
"""CPU code path, narrowest first -> the CPUID flags (names of /proc/cpuinfo) that it needs, and so
its explicit `-m` flags."""


@dataclass(frozen=True)
class Device:
    """One device. Fields that a kind does not have are None or empty; sizes in bytes.

    `kind` "cpu" or "cuda"; `arch` "x86_64", "aarch64" or "sm90". `uuid` tells two cards of one
    model apart and is no part of `id`. For CPUs `isa` lists the flags of CODE_PATH_FLAGS that it
    has, sorted, `threads` is how many a kernel may use, and `cache_bytes` is the last-level cache;
    for GPUs `cache_bytes` is L2.
    """

    kind: str
    name: str
    arch: str
    cache_bytes: int
    uuid: str | None = None
    isa: tuple[str, ...] = ()
    threads: int | None = None
    l2_bytes_per_core: int | None = None
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    smem_bytes_per_block: int | None = None
    smem_bytes_per_sm: int | None = None
    registers_per_sm: int | None = None
    memory_clock_khz: int | None = None
    power_limit_w: int | None = None

    @property
    def id(self) -> str:
        """Content hash of everything but the uuid: equal for two cards of one model."""
        fields = plain(self)
        del fields["uuid"]
        return content_hash(fields)

    def supports(self, code_path: str) -> bool:
        """Whether this CPU has every flag that `code_path` needs."""
        return set(CODE_PATH_FLAGS[code_path]) <= set(self.isa)
