"""Where operands lie in memory, drawn anew each time: a config that is fast at some addresses only
must not win by them. What is done with the operands is bench.py."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TypeVar

import torch

SLACK_BYTES = 1 << 20
"""How far places are drawn apart: many pages, and all slices of a GPU's cache."""

ALIGNMENT = 512
"""What torch's allocator aligns to on a GPU, so that a place is one that serving may have."""

T = TypeVar("T")


class Places:
    """Draws places on `device`."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device, self._draw = device, random.Random(seed)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialized contiguous tensor at a drawn place."""
        size = math.prod(shape) * dtype.itemsize
        room = torch.empty(size + SLACK_BYTES, dtype=torch.uint8, device=self._device)
        first = self._draw.randrange(0, SLACK_BYTES, ALIGNMENT) + -room.data_ptr() % ALIGNMENT
        return room[first : first + size].view(dtype).view(*shape)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy at a drawn place."""
        return self.empty(tensor.shape, tensor.dtype).copy_(tensor)

    def order(self, items: Sequence[T]) -> list[T]:
        """The items in a drawn order."""
        return self._draw.sample(items, len(items))
