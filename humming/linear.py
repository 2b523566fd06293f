"""HummingLinear: a drop-in for nn.Linear whose weight is kept packed.

The op under it is gemm.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.checkpoints.folder import Checkpoint
from humming.dispatch.intervals import TunedTable
from humming.errors import HummingError, LayoutError
from humming.gemm import (
    NO_BACKWARD,
    LayerSpec,
    bind,
    bound,
    check_bias,
    check_call,
    check_tensors,
    run,
    through_op,
)
from humming.plan import Plan, place_of
from humming.quantize.layout import TENSORS, PackedWeight, unpack
from humming.quantize.quantizers import empty, quantize
from humming.quantize.tensor import QuantizedTensor
from humming.spec.formats import QuantFormat
from humming.state import (
    ACTIVATION_DTYPES,
    ACTIVATIONS,
    canonical_codes,
    format_tensor,
    moved,
    other_format,
    packed_on_device,
    repacked,
    stored_codes,
    wait_until_written,
)
from humming.warm import WarmCall, autocast_dtype, has_tangent, intercepted, warm_call

_BUFFERS = {name: f"packed_{name}" for name in TENSORS}
_CANONICAL = ("scales", "zero_points", "global_scales", "permutation")
"""Keys of a state_dict, beside `codes` and `bias`; those that the weight has."""


class HummingLinear(nn.Module):
    """`y[..., n] = x[..., k] @ w[n, k].T + bias[n]` with a quantized weight; x fp32, bf16 or fp16.

    The weight is kept once, packed for the device that it is on; moving the layer packs it anew.
    `state_dict` holds it in canonical form, the same on all devices: `codes` uint8 [n, ceil(k *
    bits / 8)] (side by side along k, the first in the lowest bits), then `scales`, `zero_points`,
    `global_scales` and `permutation` as a QuantizedTensor has them and where it has them, `format`
    (its name as uint8 text, which a layer of another format refuses), `bias` [n]. No backward.

    The bias is kept as fp32, which holds the other types exactly. On the CPU scales keep their
    values whatever the layer's type, and x may be of any of the three. On CUDA the layer is bf16
    or fp16, x is of the layer's type, and moving or converting the layer rounds group scales to it.

    Calls are served with torch's number of threads at the time of the call, or on CUDA's current
    stream. A layer binds to a tuned table at its first call or by `prepare`; records of another
    number of threads do not match. Before a CUDA graph is captured `prepare` must have been called.
    Under torch.autocast x and the output have autocast's type, as those of an nn.Linear.
    """

    spec: LayerSpec
    packed_codes: torch.Tensor
    packed_scales: torch.Tensor
    packed_zero_points: torch.Tensor | None
    packed_row_scales: torch.Tensor | None
    packed_permutation: torch.Tensor | None
    bias: torch.Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        format: str = "int4g128",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """An all-zero layer, to be filled by `load_state_dict`; `dtype` as in nn.Linear."""
        super().__init__()
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if type(size) is not int or size < 1:
                raise LayoutError(f"`{name} >= 1` must hold as a whole number, but got {size!r}")
        dtype = dtype or torch.get_default_dtype()
        QuantFormat.parse(format)
        if dtype not in ACTIVATIONS:
            raise LayoutError(f"dtype must be fp32, bf16 or fp16, but got {dtype}")
        zeros = empty(format, out_features, in_features, dtype, device)
        no_bias = torch.zeros(out_features, device=device, dtype=dtype) if bias else None
        self._fill(packed_on_device(zeros, dtype), no_bias, dtype)

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, format: str = "int4g128", method: str = "absmax"
    ) -> HummingLinear:
        """Quantizes the weight of `linear`, which is left as it is; see quantize for `method`.

        Raises FormatError for an unknown format, LayoutError where the weight does not fit.
        """
        if not isinstance(linear, nn.Linear):
            raise LayoutError(
                f"from_linear takes an nn.Linear, but got {type(linear).__name__}; "
                "use from_quantized for codes and scales"
            )
        bias = None if linear.bias is None else linear.bias.detach()
        weight = linear.weight.detach()
        layer = cls.from_quantized(quantize(weight, format, method), bias, weight.dtype)
        return layer.train(linear.training)

    @classmethod
    def from_quantized(
        cls,
        weight: QuantizedTensor,
        bias: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> HummingLinear:
        """A layer of canonical codes and scales, and `bias[n]` (fp32, bf16, fp16).

        `dtype` is the layer's type; None takes that of the scales, or bf16 where x cannot have it.
        """
        if bias is not None:
            check_bias(bias, weight.shape[0])
        own = weight.scales.dtype
        dtype = dtype or (own if own in ACTIVATIONS else torch.bfloat16)
        if dtype not in ACTIVATIONS:
            raise LayoutError(f"dtype must be fp32, bf16 or fp16, but got {dtype}")
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._fill(packed_on_device(weight, dtype), bias, dtype)
        return layer

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        name: str | Sequence[str],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        format: str | None = None,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> HummingLinear:
        """The layer called `name` of the checkpoint in the folder `path`, exactly as it is stored.

        Several names, and the tensor-parallel shares `rows` and `columns`, as in Checkpoint.layer.
        `dtype` is the layer's type, else the model's. A float layer is quantized to `format`; of a
        quantized one it may name the activation too ("int8-int8"): without, x is taken as it comes,
        also where the tool quantizes it. Raises CheckpointError or ModelError.
        """
        stored = Checkpoint(path).layer(name, rows, columns)
        weight, bias = stored.quantized_weight(format), stored.bias
        if device is not None:
            weight, bias = weight.to(device), None if bias is None else bias.to(device)
        return cls.from_quantized(weight, bias, dtype or stored.dtype)

    def __getattr__(self, name: str) -> Any:
        """What nn.Module has; a float weight is asked for in vain, in one sentence."""
        if name == "weight":
            raise AttributeError(
                "a HummingLinear keeps no float weight; use .quantized().dequantize(), or leave "
                "the layer as it is with humming.convert(model, skip=[...])"
            )
        return super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., n] in x's dtype. Raises LayoutError where `x` does not fit or needs a gradient."""
        if _compiling():
            to = autocast_dtype(x)
            return self._through_op(x) if to is None else self._under_autocast(x, to)
        call = self._warm.get((x.shape, x.dtype, _num_threads()))
        if call is not None:
            out = call(x, self._buffers)
            if out is not None:
                return out
        return self._forward_carefully(x)

    def prepare(
        self,
        table: str | Path | TunedTable | None = None,
        m: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> HummingLinear:
        """Binds to `table` (a file, folder or database URL; None: the default one) and
        compiles now.

        Kernels of all intervals, or of the one that holds `m`; for activations of `dtype`, else of
        the layer's own. Raises TableError where the table cannot be used.
        """
        dtype = dtype or self.dtype
        place = place_of(self.packed_codes.device)
        self.spec, plan = bind(self.spec, dtype, self.bias is not None, place, table)
        self._forget()
        self._plans[dtype, torch.get_num_threads()] = plan
        plan.load_all(m)
        return self

    def _bind_like(self, prepared: HummingLinear) -> None:
        """Serves by the plans of another layer of the same shape, types, bias and device."""
        self.spec = prepared.spec
        self._forget()
        self._plans.update(prepared._plans)

    def quantized(self) -> QuantizedTensor:
        """The weight in canonical form."""
        return unpack(self._packed())

    def extra_repr(self) -> str:
        """Shape, format, layout, device, and where the configs come from."""
        configs = {
            f"{ACTIVATIONS[dtype]}: {plan.describe()}" for (dtype, _), plan in self._plans.items()
        }
        unbound = "not bound yet, the first call or humming.prepare binds"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, format={self.spec.format}, layout={self.spec.layout}, "
            f"device={self.packed_codes.device}, configs={'; '.join(sorted(configs)) or unbound}"
        )

    def _fill(self, packed: PackedWeight, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """Takes the weight over as this layer's whole state."""
        self.in_features, self.out_features = packed.k, packed.n
        self.bias_dtype = dtype if bias is None else bias.dtype
        for name in (*_BUFFERS.values(), "bias"):
            self.register_buffer(name, None, persistent=False)
        self._settle(packed, bias, dtype)

    def _settle(self, packed: PackedWeight, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """Takes over a weight packed for its device, and a bias that it shares with nobody."""
        table = self.spec.table if "spec" in self.__dict__ else None
        if bias is not None:
            bias = bias.detach().to(torch.float32, copy=True).contiguous()
        wait_until_written(packed.codes)
        for name, buffer in _BUFFERS.items():
            setattr(self, buffer, getattr(packed, name))
        self.bias = bias
        self.dtype, self.spec = dtype, LayerSpec.of(packed, table)
        self._forget()

    def _forget(self) -> None:
        """Derives anew what hangs on the buffers and the spec."""
        self.layer_text = self.spec.text
        self._plans: dict[tuple[torch.dtype, int], Plan] = {}
        self._warm: dict[tuple[torch.Size, torch.dtype, int], WarmCall] = {}

    def _packed(self) -> PackedWeight:
        return self.spec.weight(*(getattr(self, buffer) for buffer in _BUFFERS.values()))

    def _through_op(self, x: torch.Tensor) -> torch.Tensor:
        return through_op(x, self._packed(), self.bias, self.layer_text)

    def _forward_carefully(self, x: torch.Tensor) -> torch.Tensor:
        """A call that is a first one, wrong, or watched by a mode."""
        to = autocast_dtype(x)
        if to is not None:
            return self._under_autocast(x, to)
        if (x.requires_grad and torch.is_grad_enabled()) or has_tangent(x):
            raise LayoutError(NO_BACKWARD)
        if type(x) not in _PLAIN or x.is_meta or x.is_neg() or intercepted():
            return self._through_op(x)
        weight = self._packed()
        check_call(x, self.spec, self.bias)
        check_tensors(x, weight, self.bias)
        threads, biased = torch.get_num_threads(), self.bias is not None
        plan = self._plans.get((x.dtype, threads))
        if plan is None:
            plan = bound(self.spec, x.dtype, biased, place_of(x.device))
            self._plans[x.dtype, threads] = plan
        bias = None if self.bias is None else self.bias.to(torch.float32).contiguous()
        out = run(x, plan, weight, bias)
        if len(self._warm) >= _MOST_WARM:
            self._warm.clear()
        if type(x) is torch.Tensor and bias is self.bias:
            names = (*_BUFFERS.values(), "bias")
            kept = [(name, t) for name in names if (t := self._buffers[name]) is not None]
            self._warm[x.shape, x.dtype, threads] = warm_call(plan, weight, bias, kept, x)
        return out

    def _under_autocast(self, x: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        """As nn.Linear under autocast: x and the output in autocast's type, `to`. Where kernels
        need x in the layer's type, it is taken in that."""
        needed = self.spec.x_dtype
        with torch.autocast(x.device.type, enabled=False):
            return self.forward(x.to(ACTIVATION_DTYPES[needed] if needed else to)).to(to)

    def _apply(
        self,
        fn: Callable[[torch.Tensor], torch.Tensor],
        recurse: bool = True,  # noqa: ARG002  (torch names it)
    ) -> Any:
        """Moves and repacks the weight, and rounds what the new type or device rounds."""
        parts = {name: moved(fn, tensor) for name, tensor in self._packed().tensors.items()}
        if self.packed_codes.is_meta and not parts["codes"].is_meta:
            for part in parts.values():
                part.zero_()  # to_empty: whatever lies there need not be a scale
        dtype = self._after(fn, self.dtype)
        weight = repacked(self.spec.weight(**parts), dtype)
        if (bias := self.bias) is not None:
            self.bias_dtype = self._after(fn, self.bias_dtype)
            bias = moved(fn, bias).to(self.bias_dtype)
        self._settle(weight, bias, dtype)
        return self

    def _after(self, fn: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> torch.dtype:
        """The type into which `fn` converts `dtype`, where a layer can be of it."""
        new = fn(torch.empty(0, dtype=dtype, device=self.packed_codes.device)).dtype
        return new if new in ACTIVATIONS else dtype

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        weight = self.quantized()
        destination[prefix + "codes"] = stored_codes(weight)
        destination[prefix + "format"] = format_tensor(weight.format)
        for key in _CANONICAL:
            if key in weight.tensors:
                destination[prefix + key] = weight.tensors[key]
        if self.bias is not None:
            destination[prefix + "bias"] = self.bias.detach().to(self.bias_dtype)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # Nothing here is persistent to torch, so this only runs the hooks that users registered.
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs
        )
        wanted, known = self._keys()
        mismatch = other_format(state_dict.get(prefix + "format"), self.spec.format)
        found = {key: state_dict[prefix + key] for key in known if prefix + key in state_dict}
        if strict:
            missing_keys += [prefix + key for key in wanted if key not in found]
            names = [key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)]
            unexpected_keys += [prefix + name for name in names if name not in (*known, "format")]
        try:
            if mismatch:
                raise LayoutError(mismatch)
            self._take(found)
        except HummingError as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'layer'}: {error}")

    def _keys(self) -> tuple[list[str], list[str]]:
        """Keys that a state_dict of this layer must have, and those that it may have."""
        form = QuantFormat.parse(self.spec.format).weight
        zeros, second = form.zero_point is not None, form.second_scale
        asked = {"zero_points": zeros, "global_scales": second, "bias": self.bias is not None}
        must = ["codes", "scales", *(key for key, needed in asked.items() if needed)]
        free = [key for key in ("global_scales", "permutation") if key not in must]
        return must, must + free

    def _take(self, found: dict[str, torch.Tensor]) -> None:
        """Repacks from canonical tensors; what is not in `found` stays."""
        device = self.packed_codes.device
        if device.type == "meta" and "codes" in found:
            device = found["codes"].device
        weight, bias = self._packed(), self.bias
        format, n, k = self.spec.format, self.out_features, self.in_features
        if {*self._keys()[0]} - {"bias"} <= found.keys():
            codes = canonical_codes(found["codes"].to(device), format, n, k)
            others = {key: found[key].to(device) for key in _CANONICAL if key in found}
            weight = packed_on_device(QuantizedTensor(format, codes, **others), self.dtype)
        if "bias" in found:
            check_bias(found["bias"], self.out_features)
            bias = found["bias"].to(device)
            self.bias_dtype = bias.dtype
        self._settle(weight, bias, self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process: bound kernels."""
        return {**self.__dict__, "_plans": {}, "_warm": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.spec.table and not Path(self.spec.table).exists():
            self.spec = replace(self.spec, table=None)  # pickled on another machine
        # Loading may have put the tensors on another device than they were saved on.
        self._settle(repacked(self._packed(), self.dtype), self.bias, self.dtype)


_PLAIN = (torch.Tensor, nn.Parameter)
_compiling = torch.compiler.is_compiling  # by these names for the sake of time
_num_threads = torch.get_num_threads
_MOST_WARM = 128
"""Shapes of x that one layer keeps ready: a model has hundreds of layers, and each takes 2 KB."""
