"""What a checkpoint lacks of the model that it is for: biases. Where its layers
stand in the model is attach.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from humming.checkpoints.folder import Checkpoint

_BIASES: Mapping[str, tuple[str, ...]] = {
    "down_proj": ("down_proj_bias",),
    "w2": ("down_proj_bias",),
}
_FIRST = ("gate_up_proj_bias", "up_proj_bias")
"""An expert's part -> what modules of all experts call its bias; parts before the activation."""


def refuse_without_bias(served: Iterable[tuple[str, nn.Module]], checkpoint: Checkpoint) -> None:
    """Raises CheckpointError, by the tensor's name, for a quantized layer without a bias whose
    module in the model has one; `served` are (layer, module)."""
    for stored, module in served:
        part = stored.rpartition(".")[2]
        linear = hasattr(module, "in_features")
        names = ("bias",) if linear else _BIASES.get(part, _FIRST)
        if any(isinstance(getattr(module, name, None), torch.Tensor) for name in names):
            checkpoint.refuse_without_bias(stored)
