"""GPUs as tests describe them, for all that needs none. Kernels under test are tests/kernels/."""

from __future__ import annotations

from humming.spec.device import Device

_LARGE = (232448, 233472)
_SMEM = {(7, 5): (65536, 65536), (8, 0): (166912, 167936), (9, 0): _LARGE, (10, 0): _LARGE}
"""Compute capability -> shared memory of a block and of a multiprocessor; others have 99 KiB."""


CAPABILITIES = (
    (7, 5),
    (8, 0),
    (8, 6),
    (8, 7),
    (8, 9),
    (9, 0),
    (10, 0),
    (10, 3),
    (11, 0),
    (12, 0),
    (12, 1),
)
"""Compute capabilities for which kernels are compiled."""


def gpu(capability: tuple[int, int], sm_count: int = 132, known: bool = True) -> Device:
    """A GPU of `capability`; with `known` False one whose shared memory nobody told."""
    block, sm = _SMEM.get(capability, (101376, 102400)) if known else (None, None)
    return Device(
        "cuda",
        "a GPU",
        "sm{}{}".format(*capability),
        50 << 20,
        compute_capability=capability,
        sm_count=sm_count,
        smem_bytes_per_block=block,
        smem_bytes_per_sm=sm,
    )
