"""`out = x @ w.T` on packed weights: a function, and the torch op under it. Modules are linear.py.

The op's arguments are tensors and one string of content, never a handle of this process, so that
compiled graphs can be written to disk and run elsewhere.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from humming.dispatch.intervals import TunedTable
from humming.dispatch.sources import load_table, locate
from humming.errors import HummingError, LayoutError
from humming.plan import Place, Plan, place_of
from humming.quantize.layout import TENSORS, PackedWeight, packed_shapes
from humming.quantize.tensor import SCALE_DTYPES, QuantizedTensor
from humming.spec.canonical import canonical_json
from humming.spec.formats import QuantFormat
from humming.spec.layouts import LAYOUTS, row_scaled
from humming.spec.naming import did_you_mean
from humming.spec.problem import Problem
from humming.state import ACTIVATIONS, packed_on_device
from humming.version import require_alone

NO_BACKWARD = "HummingLinear has no backward; call it under torch.inference_mode()"
_SCALE_DTYPES = {name: dtype for dtype, name in SCALE_DTYPES.items()}


@dataclass(frozen=True)
class LayerSpec:
    """What the op's string says: a packed weight without its tensors, and the table that serves it.

    `x_dtype` is the type that x must have, where the scales have it; `act_order` tells of a
    permutation. `table` is the path of a generation file; None for whichever is current when the
    layer binds.
    """

    format: str
    n: int
    k: int
    layout: str
    scale_dtype: str
    x_dtype: str | None = None
    act_order: bool = False
    table: str | None = None

    @property
    def text(self) -> str:
        """Canonical JSON: the op's `layer` argument."""
        return _text(self)

    def weight(
        self,
        codes: torch.Tensor,
        scales: torch.Tensor,
        zero_points: torch.Tensor | None = None,
        row_scales: torch.Tensor | None = None,
        permutation: torch.Tensor | None = None,
    ) -> PackedWeight:
        """The packed weight of this layer with its tensors."""
        return PackedWeight(
            self.format,
            self.n,
            self.k,
            self.layout,
            codes,
            scales,
            _SCALE_DTYPES[self.scale_dtype],
            zero_points,
            row_scales,
            permutation,
        )

    @staticmethod
    def of(weight: PackedWeight, table: str | None = None) -> LayerSpec:
        """The spec of a packed weight."""
        return LayerSpec(
            weight.format,
            weight.n,
            weight.k,
            weight.layout,
            SCALE_DTYPES[weight.scale_dtype],
            _x_dtype(weight),
            weight.permutation is not None,
            table,
        )


def _x_dtype(weight: PackedWeight) -> str | None:
    """The type of x where it is that of the group scales: on CUDA, but for e8m0, kept as bf16."""
    kind, e8m0 = LAYOUTS[weight.layout].kind, weight.scale_dtype == torch.float8_e8m0fnu
    return (
        None
        if kind == "cpu" or e8m0 or not weight.scales.numel()
        else (ACTIVATIONS[weight.scales.dtype])
    )


@lru_cache(maxsize=4096)
def _text(spec: LayerSpec) -> str:
    return canonical_json(spec)


_Key = tuple[LayerSpec, torch.dtype, bool, Place]

_plans: dict[_Key, Plan] = {}
_plans_lock = threading.Lock()


def bound(spec: LayerSpec, dtype: torch.dtype, bias: bool, place: Place) -> Plan:
    """The plan by which `spec` serves activations of `dtype` at `place`, bound at the first asking.

    One for all layers of a shape. A named table that is gone, a default one that is damaged, or a
    database that cannot be asked, costs a warning, not the service: the heuristic serves.
    """
    key = (spec, dtype, bias, place)
    plan = _plans.get(key)
    if plan is not None:
        return plan
    try:
        table = load_table(spec.table)
    except HummingError as error:
        warnings.warn(f"{error}; the heuristic serves instead", RuntimeWarning, stacklevel=3)
        table = None
    return _bind(key, table)


def bind(
    spec: LayerSpec,
    dtype: torch.dtype,
    bias: bool,
    place: Place,
    table: str | Path | TunedTable | None,
) -> tuple[LayerSpec, Plan]:
    """Binds anew with `table` (None: the current default one): the spec that names it, its plan.

    Raises TableError where the table cannot be used, LayoutError on another `dtype`.
    """
    _check_dtype(dtype, spec)
    loaded = load_table(table)
    named = None if table is None or loaded is None or loaded.path is None else str(loaded.path)
    spec = replace(spec, table=named)
    return spec, _bind((spec, dtype, bias, place), loaded)


def _bind(key: _Key, table: TunedTable | None) -> Plan:
    require_alone()
    spec, dtype, bias, place = key
    name = ACTIVATIONS[dtype]
    problem = Problem(
        spec.format,
        n=spec.n,
        k=spec.k,
        m=0,
        activation_dtype=name,
        output_dtype=name,
        layout=spec.layout,
        bias=bias,
        act_order=spec.act_order,
    )
    plan = Plan(problem, place, table)
    with _plans_lock:
        _plans[key] = plan
    return plan


def gemm(
    x: torch.Tensor,
    weight: PackedWeight | QuantizedTensor,
    bias: torch.Tensor | None = None,
    table: str | os.PathLike[str] | None = None,
) -> torch.Tensor:
    """`x[..., k] @ w[n, k].T + bias[n]` as [..., n] in x's dtype (fp32, bf16 or fp16).

    On CUDA x is bf16 or fp16, and so are group scales. A QuantizedTensor is packed at each call:
    pack it once with `humming.quantize.pack`, or use HummingLinear. `table` names a tuned table,
    else the default one serves. Raises LayoutError on a shape, dtype or device that does not fit,
    TableError on a table that cannot be used.
    """
    if not isinstance(weight, (PackedWeight, QuantizedTensor)):
        raise LayoutError(
            f"gemm takes a QuantizedTensor or a PackedWeight, but got {type(weight).__name__}; "
            "quantize the weight with humming.quantize"
        )
    if not isinstance(x, torch.Tensor):
        raise LayoutError(f"gemm takes a tensor x [..., k], but got {type(x).__name__}")
    if isinstance(weight, QuantizedTensor):
        kept = weight.scales.dtype
        own = kept if kept in ACTIVATIONS and not row_scaled(weight.weight_format) else x.dtype
        packed = packed_on_device(weight, own if own in ACTIVATIONS else torch.bfloat16)
    else:
        packed = weight
    path = locate(table) if table is not None else None
    if path is not None:
        load_table(path)
    spec = LayerSpec.of(packed, None if path is None else str(path))
    return through_op(x, packed, bias, spec.text)


def through_op(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None, layer: str
) -> torch.Tensor:
    """The op `humming::linear` through torch's dispatcher, modes and compilers included."""
    out: torch.Tensor = torch.ops.humming.linear(
        x,
        weight.codes,
        weight.scales,
        weight.zero_points,
        weight.row_scales,
        weight.permutation,
        bias,
        layer,
    )
    return out


@lru_cache(maxsize=4096)
def parse_layer(layer: str) -> LayerSpec:
    """The spec that `LayerSpec.text` wrote. Raises LayoutError on anything else."""
    try:
        spec = LayerSpec(**json.loads(layer))
    except (ValueError, TypeError) as error:
        raise LayoutError(
            "humming::linear's layer must be a LayerSpec's text, "
            f"but got {layer[:60]!r}; build it with humming.gemm.LayerSpec"
        ) from error
    if spec.layout not in LAYOUTS:
        raise LayoutError(
            f"layout must be one of {', '.join(LAYOUTS)}, but got '{spec.layout}'"
            f"{did_you_mean(str(spec.layout), LAYOUTS)}"
        )
    return spec


def check_call(x: torch.Tensor, spec: LayerSpec, bias: torch.Tensor | None) -> None:
    """Raises LayoutError where the shape or type of `x` or `bias` does not fit `spec`."""
    _check_dtype(x.dtype, spec)
    n, k = spec.n, spec.k
    if x.ndim < 1 or x.shape[-1] != k:
        raise LayoutError(
            f"`x.shape[-1] == k` must hold, but got x {list(x.shape)} for a layer of k={k}, n={n}"
        )
    if bias is not None:
        check_bias(bias, n)


def check_bias(bias: torch.Tensor, n: int) -> None:
    """Raises LayoutError unless `bias` is fp32, bf16 or fp16 [n]."""
    if tuple(bias.shape) != (n,) or bias.dtype not in ACTIVATIONS:
        raise LayoutError(
            f"bias must be fp32, bf16 or fp16 [{n}], but got {_name(bias.dtype)} {list(bias.shape)}"
        )


def _check_dtype(dtype: torch.dtype, spec: LayerSpec) -> None:
    if dtype not in ACTIVATIONS:
        raise LayoutError(
            f"x must be fp32, bf16 or fp16, but got {_name(dtype)}; convert it with x.to()"
        )
    if spec.x_dtype not in (None, ACTIVATIONS[dtype]):
        wanted = _name(_SCALE_DTYPES[str(spec.x_dtype)])
        raise LayoutError(
            f"x must be {spec.x_dtype} as the layer's scales are, but got "
            f"{ACTIVATIONS[dtype]}; convert it with x.to(torch.{wanted})"
        )


def check_tensors(x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None) -> None:
    """Raises LayoutError where the tensors are not on one device that reads the layout, or the
    packed ones are not as it says.
    """
    kind = LAYOUTS[weight.layout].kind
    tensors = {"x": x, **weight.tensors, "bias": bias}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type != kind:
            raise LayoutError(
                f"layout '{weight.layout}' serves on {'the CPU' if kind == 'cpu' else 'CUDA'}, but "
                f"got {name} on {tensor.device}; move it with .to('{kind}')"
            )
        if tensor is not None and tensor.device != x.device:
            raise LayoutError(
                f"all tensors of a call must be on one device, but got x on {x.device} and {name} "
                f"on {tensor.device}; move x with x.to('{tensor.device}')"
            )
    _check_packed(weight, kind)


def _check_packed(weight: PackedWeight, kind: str) -> None:
    """Raises LayoutError where a tensor is missing, or not as the layout says."""
    form = QuantFormat.parse(weight.format).weight
    needed = {"codes": True, "scales": True, "zero_points": form.zero_point is not None}
    needed["row_scales"] = row_scaled(form) or form.second_scale
    shapes = packed_shapes(weight.layout, weight.format, weight.n, weight.k)
    float_dtype = torch.float32 if kind == "cpu" else weight.scales.dtype
    held = {"codes": torch.int32, "row_scales": torch.float32, "permutation": torch.int32}
    if kind == "cuda" and _x_dtype(weight) and weight.scale_dtype in ACTIVATIONS:
        float_dtype = weight.scale_dtype
    for name in TENSORS:
        tensor = getattr(weight, name)
        if tensor is None:
            if needed.get(name):
                raise LayoutError(
                    f"{name} must be given for format '{weight.format}', but are not; pack the "
                    "weight with humming.quantize.pack"
                )
            continue
        if tuple(tensor.shape) != shapes[name]:
            raise LayoutError(
                f"{name} must be packed for n={weight.n}, k={weight.k} as {list(shapes[name])}, "
                f"but got {list(tensor.shape)}; pack the weight with humming.quantize.pack"
            )
        wanted = held.get(name, float_dtype)
        if tensor.dtype != wanted or not tensor.is_contiguous():
            raise LayoutError(
                f"layout '{weight.layout}' holds contiguous {_name(wanted)} {name}, but got "
                f"{_name(tensor.dtype)}; convert the layer with .to(), which packs it anew, and "
                "leave its buffers alone"
            )


def run(
    x: torch.Tensor, plan: Plan, weight: PackedWeight, bias: torch.Tensor | None
) -> torch.Tensor:
    """Runs `plan` on x of any leading dimensions and strides; `bias` is fp32 and contiguous."""
    k = weight.k
    rows = x if x.ndim == 2 else x.reshape(-1, k)
    row, step = rows.stride()
    if step != 1 or row < k:
        # Not .contiguous(): it leaves a single row its odd stride.
        rows = rows.clone(memory_format=torch.contiguous_format)
    out = plan.run(rows, weight, bias)
    return out if x.ndim == 2 else out.view(*x.shape[:-1], weight.n)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    row_scales: torch.Tensor | None,
    permutation: torch.Tensor | None,
    bias: torch.Tensor | None,
    layer: str,
) -> torch.Tensor:
    spec = parse_layer(layer)
    weight = spec.weight(codes, scales, zero_points, row_scales, permutation)
    check_call(x, spec, bias)
    check_tensors(x, weight, bias)
    if (permutation is not None) != spec.act_order:
        raise LayoutError(
            f"permutation must be given where act_order is, but got act_order={spec.act_order}; "
            "build the layer's text with humming.gemm.LayerSpec.of"
        )
    if bias is not None:
        bias = bias.to(torch.float32).contiguous()
    return run(x, bound(spec, x.dtype, bias is not None, place_of(x.device)), weight, bias)


def _linear_fake(
    x: torch.Tensor,
    _codes: torch.Tensor,
    _scales: torch.Tensor,
    _zero_points: torch.Tensor | None,
    _row_scales: torch.Tensor | None,
    _permutation: torch.Tensor | None,
    bias: torch.Tensor | None,
    layer: str,
) -> torch.Tensor:
    spec = parse_layer(layer)
    check_call(x, spec, bias)
    return x.new_empty((*x.shape[:-1], spec.n))


def _no_backward(_ctx: object, _gradient: torch.Tensor) -> None:
    raise LayoutError(NO_BACKWARD)


_LIBRARY = torch.library.Library("humming", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "linear(Tensor x, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? row_scales, "
    "Tensor? permutation, Tensor? bias, str layer) -> Tensor"
)
_LIBRARY.impl("linear", _linear, "CPU")  # type: ignore[no-untyped-call]
_LIBRARY.impl("linear", _linear, "CUDA")  # type: ignore[no-untyped-call]
torch.library.register_fake("humming::linear", _linear_fake, lib=_LIBRARY)
torch.library.register_autograd("humming::linear", _no_backward, lib=_LIBRARY)
