"""Identities, problems and configs that the store's tests speak of, and drafts of trials. No tests
here.
"""

from __future__ import annotations

from typing import Any

from humming.spec.config import CpuConfig
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store.records import MeasurementDraft

CPU = Device(
    "cpu",
    "Some CPU @ 2.0 GHz",
    "x86_64",
    cache_bytes=32 * 2**20,
    uuid="socket-0",
    isa=("avx2", "f16c", "fma"),
    threads=8,
    l2_bytes_per_core=2**20,
)
GPU = Device(
    "cuda",
    "NVIDIA H200",
    "sm90",
    cache_bytes=50 * 2**20,
    uuid="GPU-1234",
    compute_capability=(9, 0),
    sm_count=132,
    smem_bytes_per_block=232448,
    smem_bytes_per_sm=233472,
    registers_per_sm=65536,
    memory_clock_khz=3201000,
    power_limit_w=700,
)


def identity(device: Device = CPU, **changes: str) -> Identity:
    """An identity on `device`, with some fields changed."""
    fields = {
        "driver": "",
        "compiler": "g++",
        "compiler_version": "g++ (Debian 12.2.0) 12.2.0",
        "source_hash": "0" * 32,
        "product_version": "0.1.0",
        "policy": "cpu-cold-median-1",
    }
    return Identity(device, **{**fields, **changes})


HERE = identity()
PROBLEM = Problem("int4g128", n=4096, k=4096, m=1)
CONFIG = CpuConfig("stream", "avx2", 1, 16, 128, 1, 0, 1)
OTHER = CpuConfig("blocked", "generic", 4, 64, 256, 1, 0, 1)


def draft(**changes: Any) -> MeasurementDraft:
    """A good trial of CONFIG, with some fields changed."""
    fields: dict[str, Any] = {
        "identity": HERE,
        "problem": PROBLEM,
        "config": CONFIG,
        "outcome": "ok",
        "us": 812.25,
        "samples": (812.25, 799.5, 1e-3 + 820),
    }
    fields.update(changes)
    if fields["outcome"] != "ok" and "us" not in changes:
        fields.update(us=None, samples=())
    return MeasurementDraft(**fields)
