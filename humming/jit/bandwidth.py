"""How fast this machine reads memory: the limit of kernels that stream weights. Times no kernel."""

from __future__ import annotations

import ctypes
import statistics
import time

import torch

from humming.jit.cache import compiled_source
from humming.jit.load import open_library
from humming.jit.pool import parallel_for_address
from humming.jit.source import read_probe_source
from humming.spec.device import Device

_CACHES = 4  # buffer size in last-level caches
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 1 << 30
_PASSES = 7


def read_bandwidth(device: Device, threads: int | None = None) -> float:
    """Bytes per second that `threads` (default: the device's) read from memory; takes about a
    second.

    The median over passes of a buffer of more than four last-level caches, by the widest code path
    that the CPU has. For a GPU, what all its multiprocessors read, see cuda/bandwidth.py.
    """
    if device.kind == "cuda":
        from humming.jit.cuda import bandwidth  # it brings in what only GPUs need

        return bandwidth.read_bandwidth(device)
    threads = threads or device.threads or 1
    code_path = next(p for p in ("avx512", "avx2", "generic") if device.supports(p))
    library = open_library(compiled_source(read_probe_source(code_path), device.arch))
    read = library.humming_read
    read.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    read.restype = ctypes.c_float
    size = min(max(_CACHES * device.cache_bytes + (1 << 20), _LEAST_BYTES), _MOST_BYTES)
    buffer = torch.ones(size // 4, dtype=torch.float32)
    pool = parallel_for_address() if threads > 1 else 0
    seconds = []
    for _ in range(_PASSES):
        start = time.perf_counter()
        read(buffer.data_ptr(), size, threads, pool)
        seconds.append(time.perf_counter() - start)
    return size / statistics.median(seconds)
