"""How fast a GPU reads its memory, by a kernel that only reads. CPUs are jit/bandwidth.py."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

import torch

from humming.jit.cache import compiled_source, read_library
from humming.jit.cuda.driver import LONG, POINTER, DeviceFunction, device_index
from humming.jit.cuda.source import read_probe_source
from humming.jit.nvrtc import nvrtc_arch
from humming.spec.device import Device

_CACHES = 8  # buffer size in L2 caches
_LEAST_BYTES, _MOST_BYTES = 256 << 20, 1 << 30
_PASSES = 9
_THREADS, _BLOCKS_PER_SM = 512, 4


def read_bandwidth(device: Device) -> float:
    """Bytes per second that all multiprocessors together read from memory.

    The median over passes of a buffer of several L2 caches, by events on torch's current stream.
    """
    index = device_index(device)
    source = read_probe_source()
    library = read_library(compiled_source(source, nvrtc_arch(source, device)).path)
    probe = DeviceFunction(library, "humming_read_probe", index)
    size = min(max(_CACHES * device.cache_bytes, _LEAST_BYTES), _MOST_BYTES)
    with torch.cuda.device(index):
        buffer = torch.zeros(size, dtype=torch.uint8, device="cuda")
        sink = torch.zeros(1, dtype=torch.int32, device="cuda")
        events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(_PASSES + 1)]  # type: ignore[no-untyped-call]
        for event in events:
            event.record()
            probe.launch(
                ((device.sm_count or 1) * _BLOCKS_PER_SM, 1),
                _THREADS,
                (buffer.data_ptr(), size // 16, sink.data_ptr()),
                (POINTER, LONG, POINTER),
            )
        events[-1].synchronize()
        passes = pairwise(events[1:])  # the first pass warms up
        ms = [float(first.elapsed_time(then)) for first, then in passes]
    return size / (statistics.median(ms) * 1e-3)
