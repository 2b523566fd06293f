"""AWQ: integers of 4 bits with zero points in groups along k, as AutoAWQ packs them.

`version` "gemm", the default; nibbles of a word, low first, are columns 0 2 4 6 1 3 5 7 of eight:

    qweight  int32 [k, n / 8]       scales  fp16 [groups, n]
    qzeros   int32 [groups, n / 8]  bias    [n], optional

`version` "gemv" (nibbles in order; scales and zero points padded to whole words along groups):

    qweight  int32 [n, k / 8]       scales  fp16 [n, 8 * words]
    qzeros   int32 [n, words]       bias    [n], optional

    w = (code - zero_point) * scale

Zero points are stored as they are. Without `qzeros` codes are symmetric around 8, unless the config
says `zero_point`: then the file lacks them. Other versions are refused: "gemv_fast" keeps rounded
products of scale and zero point, "marlin" a kernel's layout.

Source: AutoAWQ, `awq/modules/linear/gemm.py`, `gemv.py` and `awq/utils/packing_utils.py`.
"""

from __future__ import annotations

import torch

from humming.checkpoints.config.faults import fault
from humming.checkpoints.integers import integer_weight
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import from_words
from humming.checkpoints.readers.gptq import Grouping
from humming.checkpoints.registry import Reader, having
from humming.checkpoints.stored import StoredModule

BITS = 4
_PER_WORD = 8
_PLACE_OF_COLUMN = (0, 4, 1, 5, 2, 6, 3, 7)
_INT32 = (torch.int32,)


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of an AWQ checkpoint."""
    source = module.source
    values = dict(source.values)
    if "group_size" not in values:
        values["group_size"] = values.get("q_group_size", -1)
    grouping = checked(Grouping.of(values, source), module)
    version = str(values.get("version") or values.get("format") or "gemm").lower()
    if version == "gemv":
        return _read_gemv(module, grouping)
    if version != "gemm":
        key = source.path("version")
        raise fault(source.file, key, "gemm or gemv", version, "export the model as gemm")
    return read_gemm(module, grouping)


def checked(grouping: Grouping, module: StoredModule) -> Grouping:
    """`grouping`, of 4 bits."""
    if grouping.bits != BITS:
        source = module.source
        raise fault(source.file, source.path("bits"), f"{BITS} for AWQ", grouping.bits)
    return grouping


def read_gemm(module: StoredModule, grouping: Grouping) -> CheckpointLayer:
    """A layer in the gemm packing."""
    qweight = module.tensor("qweight", _INT32, (None, None))
    k, n = qweight.shape[0], qweight.shape[1] * _PER_WORD
    size = grouping.group_size or k
    groups = -(-k // size)
    scales = module.scales("scales", shape=(groups, n))
    qzeros = module.optional("qzeros", _INT32, (groups, n // _PER_WORD))
    if qzeros is None and module.source.values.get("zero_point") is True:
        raise module.files.missing(module.path("qzeros"))
    weight = integer_weight(
        module,
        _in_order(qweight).t(),
        scales.t(),
        _middle(scales).t() if qzeros is None else _in_order(qzeros).t(),
        BITS,
        grouping.group_size,
    )
    return CheckpointLayer(module.name, weight, module.bias(n), dtype=module.dtype)


def _read_gemv(module: StoredModule, grouping: Grouping) -> CheckpointLayer:
    qweight = module.tensor("qweight", _INT32, (None, None))
    n, k = qweight.shape[0], qweight.shape[1] * _PER_WORD
    size = grouping.group_size or k
    groups = -(-k // size)
    scales = module.scales("scales", shape=(n, None))
    qzeros = module.tensor("qzeros", _INT32, (n, None))
    width = min(scales.shape[1], qzeros.shape[1] * _PER_WORD)
    if width < groups:
        raise module.fault(
            f"`scales` and `qzeros` must hold {groups} groups for k={k} and group_size={size}",
            f"{width}",
            "the config's group_size is not that of the file",
        )
    weight = integer_weight(
        module,
        from_words(qweight, BITS, k),
        scales[:, :groups],
        from_words(qzeros, BITS, groups),
        BITS,
        grouping.group_size,
    )
    return CheckpointLayer(module.name, weight, module.bias(n), dtype=module.dtype)


def _in_order(words: torch.Tensor) -> torch.Tensor:
    """uint8 [rows, 8 * words], columns in their order."""
    rows, width = words.shape
    places = from_words(words, BITS, width * _PER_WORD).view(rows, width, _PER_WORD)
    return places[:, :, list(_PLACE_OF_COLUMN)].reshape(rows, width * _PER_WORD)


def _middle(scales: torch.Tensor) -> torch.Tensor:
    return torch.full(scales.shape, 1 << (BITS - 1), dtype=torch.uint8)


READER = Reader(
    title="AWQ",
    methods=("awq",),
    modules=having("qweight", "scales"),
    read=read,
    formats=("uint4g128z", "int4g128"),
)
