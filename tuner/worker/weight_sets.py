"""The copies of one weight that a walk goes over to keep the cache cold, as many as memory holds.
What is called with them is bench.py."""

from __future__ import annotations

from typing import Any

import torch

from humming.quantize.layout import PackedWeight
from tuner.measuring.policy import Policy
from tuner.measuring.samples import rotation

LEAST = 1

_SAID = ("out of memory", "not enough memory", "can't allocate memory")


def out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python had no memory left."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error).lower() for said in _SAID)


class WeightSets:
    """`wanted` copies of a weight, the first of them the weight itself; fewer where memory ends."""

    def __init__(self, packed: PackedWeight, cache_bytes: int, policy: Policy) -> None:
        self.wanted = rotation(packed.nbytes, cache_bytes, policy)
        self._cache_bytes = cache_bytes
        self.sets = [packed]
        try:
            while len(self.sets) < self.wanted:
                self.sets.append(_copy(packed))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            self.shrink()

    def shrink(self) -> bool:
        """Give half of the copies back; False where there is none to give."""
        if len(self.sets) <= LEAST:
            return False
        del self.sets[max(LEAST, len(self.sets) // 2) :]
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return True

    def record(self) -> dict[str, Any]:
        """What stands beside samples: how many sets, of how many; whether those that memory left
        still exceed the cache."""
        all_there = len(self.sets) == self.wanted
        cold = all_there or len(self.sets) * self.sets[0].nbytes > self._cache_bytes
        return {"weight_sets": len(self.sets), "wanted_sets": self.wanted, "cold": cold}


def _copy(packed: PackedWeight) -> PackedWeight:
    return packed.with_tensors({name: tensor.clone() for name, tensor in packed.tensors.items()})
