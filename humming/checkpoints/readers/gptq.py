"""GPTQ: integers of 2, 3, 4 or 8 bits with zero points, in groups or per channel, in activation
order or not. AutoRound's variations are in autoround.py.

    qweight  int32 [ceil(k * bits / 32), n]       codes along k: one stream of bits a column
    qzeros   int32 [groups, ceil(n * bits / 32)]  zero points along n, as a stream
    scales   fp16 or bf16 [groups, n]
    g_idx    int32 [k]                            the group of each input feature (act-order);
                                                  optional unless `desc_act` says so
    bias     [n], optional

    w[r, j] = (code[j, r] - zero_point[g_idx[j], r]) * scale[g_idx[j], r]

`checkpoint_format` "gptq" (v1, the default) stores zero points less 1: subtracted from whole words,
so that a zero point of 0 borrows from its neighbour, and adding 1 to each field of the word gives
it back; with 3 bits each field wraps alone. "gptq_v2" stores them as they are. `dynamic` overrides
bits and group_size by regular expressions on names; the first that matches decides.

Source: GPTQModel, `gptqmodel/nn_modules/qlinear/__init__.py` and `gptqmodel/utils/model.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import torch

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import regex_names
from humming.checkpoints.config.source import Source
from humming.checkpoints.integers import integer_weight
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import from_words, words_for
from humming.checkpoints.registry import Reader, having
from humming.checkpoints.stored import StoredModule

BITS = (2, 3, 4, 8)
_FORMATS = {"gptq": True, "gptq_v2": False}
"""`checkpoint_format` -> whether zero points are stored less 1."""


@dataclass(frozen=True)
class Grouping:
    """What a config says of one module; a `group_size` of None means one scale a channel, and
    `said` is symmetry and act-order, which its tensors tell for sure.
    """

    bits: int
    group_size: int | None
    said: tuple[bool, bool] = (True, False)

    @staticmethod
    def of(values: Mapping[str, Any], source: Source, where: str = "") -> Grouping:
        """What `values` say, which stand under `where`."""
        bits, size = values.get("bits", values.get("w_bit")), values.get("group_size", -1)
        path = f"{where}." if where else ""
        if type(bits) is not int or bits not in BITS:
            expected = f"one of {', '.join(map(str, BITS))}"
            raise fault(source.file, source.path(f"{path}bits"), expected, bits)
        if type(size) is not int or not (size == -1 or 1 <= size <= 2**24):
            raise fault(source.file, source.path(f"{path}group_size"), "-1 or at least 1", size)
        for key in ("sym", "desc_act"):
            if not isinstance(values.get(key), (bool, NoneType)):
                raise fault(source.file, source.path(f"{path}{key}"), "true or false", values[key])
        said = values.get("sym") is not False, values.get("desc_act") is True
        return Grouping(bits, None if size == -1 else size, said)


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of a GPTQ checkpoint."""
    source = module.source
    stored = source.values.get("checkpoint_format") or source.values.get("format") or "gptq"
    if not isinstance(stored, str) or stored not in _FORMATS:
        known = ", ".join(_FORMATS)
        advice = "export the model in one of these"
        raise fault(
            source.file, source.path("checkpoint_format"), f"one of {known}", stored, advice
        )
    return read_packed(module, grouping(module), less_one=_FORMATS[stored])


def grouping(module: StoredModule) -> Grouping:
    """Bits and group size of `module`, by the config's `dynamic` rules."""
    source = module.source
    rules = source.values.get("dynamic") or {}
    if not isinstance(rules, Mapping):
        raise fault(source.file, source.path("dynamic"), "an object", rules)
    for entry, changes in rules.items():
        if entry.startswith("-:") or not isinstance(changes, Mapping):
            continue
        listed = regex_names(entry.removeprefix("+:"), source.file, source.path("dynamic"))
        if listed.matches((module.name,)):
            return Grouping.of({**source.values, **changes}, source, "dynamic")
    return Grouping.of(source.values, source)


def read_packed(module: StoredModule, grouping: Grouping, less_one: bool) -> CheckpointLayer:
    """A layer in GPTQ's packing; `less_one`: zero points are stored less 1."""
    bits = grouping.bits
    qweight = module.tensor("qweight", (torch.int32,), (None, None))
    height, n = qweight.shape
    groups_of = module.optional("g_idx", (torch.int32, torch.int64), (None,))
    k = height * 32 // bits if groups_of is None else groups_of.shape[0]
    if words_for(k, bits) != height:
        raise module.fault(
            f"`qweight` must have {words_for(k, bits)} rows for k={k} and {bits} bits",
            f"{height}",
            "the config's bits are not those of the file",
        )
    size = grouping.group_size or k
    groups = -(-k // size)
    if grouping.said[1] and groups > 1 and groups_of is None:  # in one group order is of no matter
        raise module.files.missing(module.path("g_idx"))
    scales = module.scales("scales", shape=(groups, n))
    qzeros = module.tensor("qzeros", (torch.int32,), (groups, words_for(n, bits)))
    weight = integer_weight(
        module,
        from_words(qweight.t(), bits, k),
        scales.t(),
        zero_points(qzeros, bits, n, less_one).t(),
        bits,
        grouping.group_size,
        groups_of,
        grouping.said,
    )
    return CheckpointLayer(module.name, weight, module.bias(n), dtype=module.dtype)


def zero_points(qzeros: torch.Tensor, bits: int, n: int, less_one: bool) -> torch.Tensor:
    """uint8 [groups, n]."""
    if less_one and 8 % bits == 0:
        ones = sum(1 << at for at in range(0, 32, bits))
        wide = (qzeros.to(torch.int64) + ones) & 0xFFFFFFFF
        qzeros = (wide - ((wide >> 31) << 32)).to(torch.int32)
    zeros = from_words(qzeros, bits, n)
    return (zeros + 1) & ((1 << bits) - 1) if less_one and 8 % bits else zeros


READER = Reader(
    title="GPTQ",
    methods=("gptq",),
    modules=having("qweight", "scales"),
    read=read,
    formats=("int4g128", "uint4g128z", "int8", "int3g64", "uint2g32z"),
)
