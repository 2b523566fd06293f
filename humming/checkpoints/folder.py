"""Checkpoint: a model's folder, whose linear layers are read one by one. How a format stores them
is known to its reader.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from humming.checkpoints.config.config_file import ConfigFile, read_config
from humming.checkpoints.config.source import Source, found_source
from humming.checkpoints.config.text_config import TextConfig, text_config
from humming.checkpoints.layer import CheckpointLayer, fused
from humming.checkpoints.registry import Reader, reader_of
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.errors import CheckpointError

Share = tuple[int, int]
"""A tensor-parallel share: (rank, size)."""

_CODES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8, torch.int8, torch.int32)
_WEIGHT = ".weight"
_GATE_UP = "gate_up_proj"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Checkpoint:
    """The linear layers of the model in the folder `path`, in order of their names in its files.

    `source` is its quantization config, or None. A layer's tensors are read when it is asked for;
    with `headers_only` they are meta tensors: formats, types and shapes without any weight.
    Raises ModelError for a config and CheckpointError for files that cannot be read.
    """

    def __init__(self, path: str | Path, headers_only: bool = False) -> None:
        self.path = Path(path)
        config = read_config(path)
        text = text_config(config)
        self.source = found_source(config, text)
        self.reader: Reader | None = None if self.source is None else reader_of(self.source)
        folder = config.path.parent
        self.dtype = _model_dtype(config, text)
        self.files = TensorFiles(folder, headers_only)
        self._source = self.source or Source(config.name, "", {}, text.values)

    @cached_property
    def quantized_names(self) -> tuple[str, ...]:
        """The modules that the format's reader reads: those that it knows by their tensors, and
        those whose weight is codes though they lack something: reading these says what."""
        if self.reader is None:
            return ()
        known = self.reader.modules(self.files, self._source)
        codes = (name for name in self._weights if self._is_matrix(name, _CODES))
        return tuple(dict.fromkeys((*known, *codes)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All modules with a weight `[n, k]`: quantized ones first, then float ones."""
        floats = (name for name in self._weights if self._is_matrix(name, FLOATS))
        return (
            *self.quantized_names,
            *(name for name in floats if name not in self._quantized),
        )

    def __iter__(self) -> Iterator[CheckpointLayer]:
        return (self.layer(name) for name in self.names)

    def __len__(self) -> int:
        return len(self.names)

    def layer(
        self,
        name: str | Sequence[str],
        rows: Share | None = None,
        columns: Share | None = None,
    ) -> CheckpointLayer:
        """The layer called `name`; of several names one layer, rows one under another (q, k, v).

        `rows` and `columns` take a tensor-parallel share (rank, size) of each part's output or
        input features. Raises CheckpointError where there is none, or parts are not alike.
        """
        sound = isinstance(name, (str, Sequence)) and all(isinstance(one, str) for one in name)
        if not sound or not name:
            raise CheckpointError(f"`name` must be a module's name or several, but got {name!r}")
        _check_share("rows", rows)
        _check_share("columns", columns)
        names = (name,) if isinstance(name, str) else tuple(name)
        layers = [self._read(one) for one in names]
        if rows is not None:
            layers = [layer.rows(*rows) for layer in layers]
        if columns is not None:
            layers = [layer.columns(*columns) for layer in layers]
        return fused(layers)

    def experts(
        self,
        block: str,
        parts: str | Sequence[str],
        rows: Share | None = None,
        columns: Share | None = None,
    ) -> tuple[CheckpointLayer, ...]:
        """One layer for each expert of the block called `block` ("model.layers.0.mlp.experts"), in
        order; `parts` are fused in each: ("gate_proj", "up_proj").
        """
        names = (parts,) if isinstance(parts, str) else tuple(parts)
        numbers = self._expert_numbers(block)
        if not names or numbers != list(range(len(numbers))) or not numbers:
            raise CheckpointError(
                f"{self.path}: {block} must hold experts 0, 1, 2, .., but got "
                f"{numbers[:4] or 'none'}; name the block of experts"
            )
        return tuple(
            self.layer([f"{block}.{number}.{part}" for part in names], rows, columns)
            for number in numbers
        )

    def _expert_numbers(self, block: str) -> list[int]:
        start = f"{block}."
        known = (*self.quantized_names, *self.files.names)
        steps = {name[len(start) :].partition(".")[0] for name in known if name.startswith(start)}
        return sorted(int(step) for step in steps if step.isascii() and step.isdecimal())

    @cached_property
    def _quantized(self) -> frozenset[str]:
        return frozenset(self.quantized_names)

    def refuse_torn(self, name: str) -> None:
        """Raises CheckpointError where the module called `name` has tensors of a quantized layer,
        scales such as they are, but no weight; it names what is missing."""
        weight = f"{name}{_WEIGHT}"
        held = {*self._tensors_of.get(name, ()), *self._tensors_of.get(weight, ())} - {"bias"}
        if self.reader is None or name in self._quantized or not held or weight in self.files:
            return
        self.reader.read(self.module(name))
        raise self.files.missing(weight)

    def refuse_without_bias(self, name: str) -> None:
        """Raises CheckpointError where the layer called `name`, or the stack of experts that it is
        a part of, has no bias; it names the tensor."""
        above, _, part = name.rpartition(".")
        block, _, number = above.rpartition(".")
        homes = (part, _GATE_UP) if part in ("gate_proj", "up_proj") else (part,)
        stacks = [f"{block}.{home}" for home in homes] if number.isdecimal() else []
        biases = [f"{name}.bias", *(f"{stack}_bias" for stack in stacks)]
        if any(bias in self.files for bias in biases):
            return
        inside = [] if self.holds(name) else [f"{s}_bias" for s in stacks if self._begins(s)]
        raise self.files.missing((inside or biases)[0])

    def holds(self, name: str) -> bool:
        """Whether the module called `name`, or one in it, has a tensor that is no bias."""
        return name in self._holders

    def holds_end(self, end: str) -> bool:
        """Whether that is so of a module whose name ends with the steps `end`."""
        return end in self._holders or any(name.endswith(f".{end}") for name in self._holders)

    def _begins(self, start: str) -> bool:
        return any(name.startswith(start) for name in self.files.names)

    @cached_property
    def _holders(self) -> frozenset[str]:
        """All modules that hold a tensor, in themselves or deeper, that is no bias."""
        found: set[str] = set()
        for name in self.files.names:
            owner = "" if name.endswith("bias") else name.rpartition(".")[0]
            while owner and owner not in found:
                found.add(owner)
                owner = owner.rpartition(".")[0]
        return frozenset(found)

    @cached_property
    def _tensors_of(self) -> dict[str, set[str]]:
        """What each module's own tensors are called."""
        found: dict[str, set[str]] = {}
        for name in self.files.names:
            owner, _, own = name.rpartition(".")
            found.setdefault(owner, set()).add(own)
        return found

    def module(self, name: str) -> StoredModule:
        """The tensors whose names begin with `name` and a dot, each checked as it is read."""
        return StoredModule(name, self.files, self._source, self.dtype)

    def _read(self, name: str) -> CheckpointLayer:
        module = self.module(name)
        if self.reader is not None and name in self._quantized:
            return self.reader.read(module)
        if not module.has("weight"):
            raise self._unknown(name)
        weight = module.scales("weight", FLOATS, (None, None))
        return CheckpointLayer(name, weight, module.bias(weight.shape[0]), dtype=self.dtype)

    @property
    def _weights(self) -> Iterator[str]:
        """The modules that have a tensor called `weight`."""
        return (name[: -len(_WEIGHT)] for name in self.files.names if name.endswith(_WEIGHT))

    def _is_matrix(self, name: str, kinds: Sequence[torch.dtype]) -> bool:
        info = self.files.info(name + _WEIGHT)
        return len(info.shape) == 2 and info.dtype in kinds

    def _unknown(self, name: str) -> CheckpointError:
        near = difflib.get_close_matches(name, self.names, 1, 0.5)
        hint = f"did you mean {near[0]}" if near else "its layers are listed by iterating over it"
        return CheckpointError(
            f"{self.path} must hold a layer {ascii(name)[1:-1]}, but has none; {hint}"
        )


def _model_dtype(config: ConfigFile, text: TextConfig) -> torch.dtype:
    """The type that the model was saved in to compute; bf16 where the config says none."""
    for values in (text.values, config.values):
        for key in ("dtype", "torch_dtype"):
            found = _DTYPES.get(str(values.get(key)).removeprefix("torch."))
            if found is not None:
                return found
    return torch.bfloat16


def _check_share(what: str, share: Any) -> None:
    pair = isinstance(share, (tuple, list)) and len(share) == 2
    if share is not None and not (pair and all(type(number) is int for number in share)):
        raise CheckpointError(
            f"`{what}` must be a tensor-parallel share (rank, size), but got {share!r}; "
            "write (0, 2) for the first of two"
        )
