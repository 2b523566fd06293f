"""Made: a small checkpoint and the weights that the library which made it takes from it. How each
library makes one is in its file here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Made:
    """`tensors` by full name, the `quantization` config, and `expected`: weights by module, in the
    type that the library computes them in; `rounded` are the modules where it rounds more than
    once, so that one unit in the last place may differ.
    """

    tensors: Mapping[str, torch.Tensor]
    quantization: Mapping[str, Any]
    expected: Mapping[str, torch.Tensor]
    metadata: Mapping[str, str] | None = None
    rounded: frozenset[str] = field(default_factory=frozenset)


def weight(n: int, k: int, seed: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Normal numbers [n, k]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator).to(dtype)
