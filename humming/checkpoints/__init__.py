"""Checkpoints of public quantization tools, read exactly: `open(folder)` gives its layers as codes
and scales. How a format stores them is in readers/, one file each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from humming.checkpoints.folder import Checkpoint
    from humming.checkpoints.layer import CheckpointLayer

__all__ = ["Checkpoint", "CheckpointLayer", "open"]


def open(path: str | Path, headers_only: bool = False) -> Checkpoint:
    """The checkpoint in the folder `path`; with `headers_only` its layers are of meta tensors.

    Raises ModelError or CheckpointError, one sentence.
    """
    from humming.checkpoints.folder import Checkpoint

    return Checkpoint(path, headers_only)


def __getattr__(name: str) -> Any:
    if name == "Checkpoint":
        from humming.checkpoints.folder import Checkpoint

        return Checkpoint
    if name == "CheckpointLayer":
        from humming.checkpoints.layer import CheckpointLayer

        return CheckpointLayer
    raise AttributeError(f"module 'humming.checkpoints' has no attribute '{name}'")
