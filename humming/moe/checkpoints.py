"""A block of experts out of a checkpoint's folder, exactly as it is stored. Model types are rows of
forms.py, how tensors are packed is known to humming/checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.checkpoints.config.config_file import read_config
from humming.checkpoints.config.text_config import text_config
from humming.checkpoints.folder import Checkpoint
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.stored import FLOATS
from humming.errors import CheckpointError
from humming.linear import HummingLinear
from humming.moe.activations import ExpertActivation
from humming.moe.experts import HummingExperts
from humming.moe.forms import BlockForm, activation_of, form_of
from humming.moe.module import HummingMoE, SharedExpert
from humming.moe.router import RouterRule
from humming.moe.stack import ExpertStack
from humming.quantize.tensor import QuantizedTensor

Share = tuple[int, int]
_CORRECTED = "noaux_tc"
"""The `topk_method` of routers that add a correction to scores for choosing."""


@dataclass(frozen=True)
class _Wanted:
    """What of the block, and as what."""

    checkpoint: Checkpoint
    block: str
    form: BlockForm
    activation: ExpertActivation
    rule: RouterRule
    device: torch.device | str | None
    dtype: torch.dtype
    format: str | None
    tp: Share
    ep: Share


def read_block(
    path: str | Path,
    block: str,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    format: str | None = None,
    tp: Share = (0, 1),
    ep: Share = (0, 1),
) -> HummingMoE:
    """The block called `block` of the checkpoint in the folder `path`.

    `tp` (rank, size) takes a share of every expert's width, `ep` one of the experts; ranks' results
    are to be added, and rank 0 alone has biases of the second projection and, of `ep`, the shared
    expert. Float experts are quantized to `format`; to stored ones it may add an activation. Raises
    ModelError, CheckpointError.
    """
    wanted = _wanted(Checkpoint(path), block, device, dtype, format, tp, ep)
    form, router = wanted.form, _router(wanted)
    method = text_config(read_config(path)).get("topk_method")
    told = method in (None, _CORRECTED)  # other methods have no correction
    correction = _tensor(wanted, form.correction, told) if form.correction else None
    shared = _shared(wanted)
    moe = HummingMoE(
        router.dequantized(wanted.dtype),
        _experts(wanted, router.shape[0]),
        wanted.rule,
        None if correction is None else correction.to(torch.float32),
        router.bias,
        shared,
        _shared_gate(wanted, shared is not None),
    )
    return moe if device is None else moe.to(device)


def read_experts(
    checkpoint: Checkpoint, block: str, device: torch.device, dtype: torch.dtype
) -> HummingExperts:
    """The experts of the block called `block`, without what stands around them."""
    wanted = _wanted(checkpoint, block, device, dtype)
    return _experts(wanted, _router(wanted).shape[0])


def check_experts(headers: Checkpoint, block: str) -> tuple[int, int]:
    """Raises what `read_experts` would raise of names, types and shapes, from headers alone; how
    many weights the first and the second projection of all experts have."""
    wanted = _wanted(headers, block)
    count = _router(wanted).shape[0]
    first: dict[str, QuantizedTensor] = {}
    for number in range(count):
        for part in wanted.form.parts:
            name = f"{block}.experts.{number}.{part}"
            weight = headers.layer(name).quantized_weight()
            wants = first.setdefault(part, weight)
            if _kind(weight) != _kind(wants):
                raise _unlike(headers, name, weight, wants)
    *ups, down = (first[part] for part in wanted.form.parts)
    for up in ups:
        if _kind(up) != _kind(ups[0]) or up.shape != down.shape[::-1]:
            raise _unlike(headers, f"{block}.experts.0", up, down)
    return count * sum(up.codes.numel() for up in ups), count * down.codes.numel()


def _kind(weight: QuantizedTensor) -> tuple[str, tuple[int, int], torch.dtype]:
    return weight.format, weight.shape, weight.scales.dtype


def _unlike(
    headers: Checkpoint, name: str, one: QuantizedTensor, other: QuantizedTensor
) -> CheckpointError:
    return CheckpointError(
        f"{headers.path}: experts must be alike in format, sizes and type of scales, but got "
        f"{name} as {one.format} {list(one.shape)} beside {other.format} {list(other.shape)}; its "
        "config or the file is wrong"
    )


def _wanted(
    checkpoint: Checkpoint,
    block: str,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    format: str | None = None,
    tp: Share = (0, 1),
    ep: Share = (0, 1),
) -> _Wanted:
    config = text_config(read_config(checkpoint.path))
    form = form_of(config)
    return _Wanted(
        checkpoint,
        block,
        form,
        activation_of(config, form),
        form.rule(config),
        device,
        dtype or checkpoint.dtype,
        format,
        tp,
        ep,
    )


def _router(wanted: _Wanted) -> CheckpointLayer:
    router = wanted.checkpoint.layer(f"{wanted.block}.{wanted.form.router}")
    if wanted.form.biased:
        wanted.checkpoint.refuse_without_bias(router.name)
    return router


def _tensor(wanted: _Wanted, name: str, needed: bool) -> torch.Tensor | None:
    """A float tensor of the block, finite; None where it has none and none is `needed`."""
    module = wanted.checkpoint.module(wanted.block)
    return module.scales(name) if needed or module.has(name) else None


def _floats(wanted: _Wanted, name: str) -> bool:
    """Whether the block has a tensor of this name, and one of floats."""
    full, files = f"{wanted.block}.{name}", wanted.checkpoint.files
    return full in files and files.info(full).dtype in FLOATS


def _experts(wanted: _Wanted, count: int) -> HummingExperts:
    """This rank's share of the block's `count` experts."""
    rank, size = wanted.ep
    if count % size or not 0 <= rank < size:
        raise CheckpointError(
            f"`experts % size == 0` and `0 <= rank < size` must hold, but got experts={count}, "
            f"rank={rank}, size={size}; choose another expert-parallel size"
        )
    each = count // size
    numbers = range(rank * each, (rank + 1) * each)
    up, down = (_stack(wanted, layers, each) for layers in _layers(wanted, numbers))
    return HummingExperts(up, down, wanted.activation, numbers.start, wanted.rule.scales_input)


def _layers(
    wanted: _Wanted, numbers: range
) -> tuple[Iterator[CheckpointLayer], Iterator[CheckpointLayer]]:
    """Both projections of the experts of those numbers, read as they are asked for."""
    *up, down = wanted.form.parts
    if _floats(wanted, f"experts.{'gate_up_proj' if len(up) == 2 else 'up_proj'}"):
        return _stacked_layers(wanted, numbers)
    ups = (_expert(wanted, number, up, rows=wanted.tp) for number in numbers)
    downs = (_expert(wanted, number, [down], columns=wanted.tp) for number in numbers)
    return ups, downs


def _expert(
    wanted: _Wanted,
    number: int,
    parts: Sequence[str],
    rows: Share | None = None,
    columns: Share | None = None,
) -> CheckpointLayer:
    names = [f"{wanted.block}.experts.{number}.{part}" for part in parts]
    for name in names if wanted.form.biased else ():
        wanted.checkpoint.refuse_without_bias(name)
    return wanted.checkpoint.layer(names, rows=rows, columns=columns)


def _stack(wanted: _Wanted, layers: Iterator[CheckpointLayer], count: int) -> ExpertStack:
    """Packs layers as they come."""
    biases: list[torch.Tensor | None] = []

    def weights() -> Iterator[QuantizedTensor]:
        for layer in layers:
            weight, bias = layer.quantized_weight(wanted.format), layer.bias
            biases.append(bias)
            yield weight if wanted.device is None else weight.to(wanted.device)

    stack = ExpertStack.of(weights(), None, wanted.dtype, wanted.rule.top_k, count)
    if any(bias is not None for bias in biases):
        n = stack.spec.n
        rows = [torch.zeros(n) if bias is None else bias.float() for bias in biases]
        stack = ExpertStack(
            stack.packed(),
            torch.stack(rows).to(stack.packed_codes.device),
            wanted.dtype,
            wanted.rule.top_k,
        )
    return stack


def _stacked_layers(
    wanted: _Wanted, numbers: range
) -> tuple[Iterator[CheckpointLayer], Iterator[CheckpointLayer]]:
    """Float experts of one tensor a projection: [experts, n, k], or [experts, k, n] transposed."""
    form, start = wanted.form, f"{wanted.block}.experts."
    first = "gate_up_proj" if len(form.parts) == 3 else "up_proj"
    experts = wanted.checkpoint.module(start.rstrip("."))

    def read(name: str, number: int) -> CheckpointLayer:
        files = wanted.checkpoint.files
        whole = files.tensor(start + name)[number]
        weight = (whole.t() if form.transposed else whole).contiguous()
        key = f"{name}_bias"
        bias = None
        if form.biased or experts.has(key):
            bias = experts.finite(key, experts.tensor(key)[number])
        return CheckpointLayer(f"{start}{number}.{name}", weight, bias, dtype=wanted.dtype)

    def up(number: int) -> CheckpointLayer:
        layer = read(first, number)
        if len(form.parts) == 2:
            return layer.rows(*wanted.tp)
        weight, bias = layer.dequantized(wanted.dtype), layer.bias
        half = len(weight) // 2
        places = [slice(0, None, 2), slice(1, None, 2)]
        if not form.interleaved:
            places = [slice(0, half), slice(half, None)]
        parts = [
            CheckpointLayer(
                layer.name, weight[p], None if bias is None else bias[p], dtype=wanted.dtype
            ).rows(*wanted.tp)
            for p in places
        ]
        joined = torch.cat([part.dequantized(wanted.dtype) for part in parts])
        both = [part.bias for part in parts if part.bias is not None]
        return CheckpointLayer(
            layer.name, joined, torch.cat(both) if both else None, dtype=wanted.dtype
        )

    ups = (up(number) for number in numbers)
    downs = (read("down_proj", number).columns(*wanted.tp) for number in numbers)
    return ups, downs


def _shared(wanted: _Wanted) -> nn.Module | None:
    """The shared expert; ranks of expert parallelism other than the first leave it out."""
    form = wanted.form
    if not form.shared or wanted.ep[0] > 0:
        return None
    *up, down = (f"{wanted.block}.{form.shared}.{part}" for part in form.shared_parts)
    if f"{down}.weight" not in wanted.checkpoint.files and down not in wanted.checkpoint.names:
        return None
    activation = wanted.activation
    first = _linear(wanted, wanted.checkpoint.layer(up, rows=wanted.tp))
    second = _linear(wanted, wanted.checkpoint.layer(down, columns=wanted.tp))
    return SharedExpert(first, second, activation)


def _shared_gate(wanted: _Wanted, needed: bool) -> torch.Tensor | None:
    """[1, h], also of a gate that is quantized; None where there is none and none is `needed`."""
    checkpoint, name = wanted.checkpoint, f"{wanted.block}.{wanted.form.shared_gate}"
    if not wanted.form.shared_gate or not (needed or checkpoint.holds(name)):
        return None
    if not checkpoint.holds(name):
        raise checkpoint.files.missing(f"{name}.weight")
    return checkpoint.layer(name).dequantized(wanted.dtype)


def _linear(wanted: _Wanted, layer: CheckpointLayer) -> nn.Module:
    """Packed where the checkpoint quantizes it or a format was named, else an nn.Linear."""
    if layer.quantized or wanted.format is not None:
        weight, bias = layer.quantized_weight(wanted.format), layer.bias
        return HummingLinear.from_quantized(weight, bias, wanted.dtype)
    n, k = layer.shape
    linear = nn.Linear(k, n, bias=layer.bias is not None, dtype=wanted.dtype)
    values: dict[str, Any] = {"weight": layer.dequantized(wanted.dtype)}
    if layer.bias is not None:
        values["bias"] = layer.bias
    linear.load_state_dict(values)
    return linear
