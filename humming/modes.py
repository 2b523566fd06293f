"""What holds for all layers of this process: whether they are batch-invariant. How a layer is bound
under it is plan.py and dispatch/invariant.py."""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakSet

from humming.errors import UsageError


class Bound(Protocol):
    """What binds kernels, and can bind anew."""

    def _forget(self) -> None: ...


_LOCK = threading.Lock()
_LAYERS: WeakSet[Bound] = WeakSet()
_batch_invariant = False


def set_batch_invariant(on: bool) -> None:
    """From now on each layer of this process gives a row of x the same bits whatever the number of
    rows, if `on`; else what is fastest serves.

    Layers bind anew at their next call or `prepare`: to records that were tuned for batch-invariant
    problems, else to a heuristic that sums up along k alike for every m. CUDA graphs that were
    captured before stay as they are. Raises UsageError for what is no bool.
    """
    global _batch_invariant
    if type(on) is not bool:
        raise UsageError(f"set_batch_invariant takes True or False, but got {on!r}")
    with _LOCK:
        _batch_invariant = on
        layers = list(_LAYERS)
    for layer in layers:
        layer._forget()


def batch_invariant() -> bool:
    """Whether layers are batch-invariant at this moment."""
    return _batch_invariant


def keep_told(layer: Bound) -> None:
    """Has `layer` forget what it bound whenever a mode changes."""
    with _LOCK:
        _LAYERS.add(layer)
