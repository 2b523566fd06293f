"""Who is measuring or serving here: device, compiler, kernel sources, product, timing policy.

The rules by which two identities compare are spec/identity.py; finding devices is detect.py.
"""

from __future__ import annotations

import torch

from humming.errors import CompilerNotFoundError
from humming.jit.compiler import find_compiler
from humming.jit.detect import available_threads, cpu_device
from humming.jit.source import source_hash
from humming.spec.device import Device
from humming.spec.identity import POLICY, Identity
from humming.version import __version__

__all__ = ["POLICY", "here", "serving_device", "serving_threads"]


def here(device: Device | None = None) -> Identity:
    """The identity of this machine with `device` (None: the CPU as this process serves on it).

    Without a compiler its fields are empty: a machine that serves from a ready-made kernel cache
    still finds its tuned records, as stale ones. For CPUs `driver` is empty, since nothing that a
    kernel does there goes through one.
    """
    try:
        compiler = find_compiler()
        name, version = compiler.name, compiler.version
    except CompilerNotFoundError:
        name, version = "", ""
    return Identity(
        device=device or serving_device(),
        driver="",
        compiler=name,
        compiler_version=version,
        source_hash=source_hash(),
        product_version=__version__,
        policy=POLICY,
    )


def serving_threads() -> int:
    """How many threads a call uses: torch's setting, within the CPUs that this process may use.

    It is a part of the identity, as a config that is best on two threads need not be on four:
    after `torch.set_num_threads` only records of that number match, else the heuristic serves.
    """
    return max(1, min(torch.get_num_threads(), available_threads()))


def serving_device(threads: int | None = None) -> Device:
    """This CPU with `threads` threads, by default those that torch's setting gives a call."""
    return cpu_device(serving_threads() if threads is None else threads)
