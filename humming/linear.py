"""HummingLinear: a drop-in for nn.Linear whose weight is kept packed.

The op under it is gemm.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.dispatch.intervals import TunedTable
from humming.errors import HummingError, LayoutError
from humming.gemm import (
    NO_BACKWARD,
    LayerSpec,
    bind,
    bound,
    check_call,
    check_tensors,
    run,
    through_op,
)
from humming.plan import ACTIVATIONS, Plan
from humming.quantize.layout import PackedWeight, pack, unpack
from humming.quantize.tensor import QuantizedTensor, quantize
from humming.spec.formats import QuantFormat

_KEYS = ("codes", "scales", "bias")
_PACKED = ("packed_codes", "packed_scales")


class HummingLinear(nn.Module):
    """`y[..., n] = x[..., k] @ w[n, k].T + bias[n]` with a quantized weight; x fp32, bf16 or fp16.

    The weight is kept once, packed for the kernels; `state_dict` holds it in canonical form:
    `codes` uint8 [n, k / 2] (two a byte, low nibble first), `scales` [n, groups], `bias` [n].
    The bias is kept as fp32, which holds the other types exactly. There is no backward.

    Calls are served with torch's number of threads at the time of the call. A layer binds to a
    tuned table at its first call or by `prepare`; records of another number of threads do not
    match.
    """

    spec: LayerSpec
    packed_codes: torch.Tensor
    packed_scales: torch.Tensor
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
        dtype = dtype or torch.get_default_dtype()
        groups = QuantFormat.parse(format).weight.groups(in_features)
        if dtype not in ACTIVATIONS:
            raise LayoutError(f"dtype must be fp32, bf16 or fp16, but got {dtype}")
        packed = pack(
            QuantizedTensor(
                format,
                torch.zeros(out_features, in_features, dtype=torch.int8, device=device),
                torch.zeros(out_features, groups, dtype=dtype, device=device),
            )
        )
        self._fill(packed, torch.zeros(out_features, device=device) if bias else None, dtype)

    @classmethod
    def from_linear(cls, linear: nn.Linear, format: str = "int4g128") -> HummingLinear:
        """Quantizes the weight of `linear`, which is left as it is.

        Raises FormatError for a format that does not run, LayoutError where the weight does
        not fit.
        """
        if not isinstance(linear, nn.Linear):
            raise LayoutError(
                f"from_linear takes an nn.Linear, but got {type(linear).__name__}; "
                "use from_quantized for codes and scales"
            )
        bias = None if linear.bias is None else linear.bias.detach()
        layer = cls.from_quantized(quantize(linear.weight.detach(), format), bias)
        return layer.train(linear.training)

    @classmethod
    def from_quantized(
        cls, weight: QuantizedTensor, bias: torch.Tensor | None = None
    ) -> HummingLinear:
        """A layer of canonical codes and scales, and `bias[n]` (fp32, bf16, fp16)."""
        n, _ = weight.shape
        if bias is not None and (tuple(bias.shape) != (n,) or bias.dtype not in ACTIVATIONS):
            raise LayoutError(
                f"bias must be fp32, bf16 or fp16 [{n}], but got {bias.dtype} {list(bias.shape)}"
            )
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._fill(pack(weight), bias, weight.scales.dtype)
        return layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., n] in x's dtype. Raises LayoutError where `x` does not fit or needs a gradient."""
        if torch.compiler.is_compiling():
            return self._through_op(x)
        buffers, weight = self._buffers, self._weight
        plan = self._plans.get((x.dtype, torch.get_num_threads()))
        if (
            plan is None
            or type(x) is not torch.Tensor
            or not x.is_cpu
            or x.shape[-1:] != self._k
            or buffers["packed_codes"] is not weight.codes
            or buffers["packed_scales"] is not weight.scales
            or x.requires_grad
            or x.is_neg()
            or _intercepted()
        ):
            return self._forward_carefully(x)
        return run(x, plan, weight, buffers["bias"])

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
        self.spec, plan = bind(self.spec, dtype, self.bias is not None, table)
        self._forget()
        self._plans[dtype, torch.get_num_threads()] = plan
        plan.load_all(m)
        return self

    def quantized(self) -> QuantizedTensor:
        """The weight in canonical form."""
        return unpack(self.spec.weight(self.packed_codes, self.packed_scales))

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
        _require_cpu(packed.codes)
        self.in_features, self.out_features = packed.k, packed.n
        self.dtype = dtype
        self.bias_dtype = dtype if bias is None else bias.dtype
        self.spec = LayerSpec.of(packed)
        self.register_buffer("packed_codes", packed.codes, persistent=False)
        self.register_buffer("packed_scales", packed.scales, persistent=False)
        self.register_buffer("bias", _fp32(bias), persistent=False)
        self._forget()

    def _forget(self) -> None:
        """Derives anew what hangs on the buffers and the spec."""
        self._k = (self.spec.k,)
        self.layer_text = self.spec.text
        self._plans: dict[tuple[torch.dtype, int], Plan] = {}
        self._weight = self.spec.weight(self.packed_codes, self.packed_scales)

    def _through_op(self, x: torch.Tensor) -> torch.Tensor:
        return through_op(x, self.packed_codes, self.packed_scales, self.bias, self.layer_text)

    def _forward_carefully(self, x: torch.Tensor) -> torch.Tensor:
        """A call that is a first one, wrong, or watched by a mode."""
        if x.requires_grad and torch.is_grad_enabled():
            raise LayoutError(NO_BACKWARD)
        if type(x) not in _PLAIN or x.is_meta or x.is_neg() or _intercepted():
            return self._through_op(x)
        check_call(x, self.out_features, self.in_features, self.bias)
        weight = self.spec.weight(self.packed_codes, self.packed_scales)
        check_tensors(x, weight)
        plan = bound(self.spec, x.dtype, self.bias is not None)
        self._plans[x.dtype, torch.get_num_threads()] = plan
        return run(x, plan, weight, self.bias)

    def _apply(
        self,
        fn: Callable[[torch.Tensor], torch.Tensor],
        recurse: bool = True,  # noqa: ARG002  (torch names it)
    ) -> Any:
        """Moves the packed form and rounds the bias; codes and scales keep their types."""
        codes = fn(self.packed_codes)
        if codes.dtype != torch.int32:  # Module.type() casts integers too
            codes = self.packed_codes.to(codes.device)
        _require_cpu(codes)
        dtype = fn(torch.empty(0, dtype=self.dtype, device=self.packed_codes.device)).dtype
        if dtype in ACTIVATIONS and dtype != self.dtype:
            self.dtype = self.bias_dtype = dtype
            scales = self.packed_scales.to(codes.device)
            bias = self.bias if self.bias is None else self.bias.to(codes.device, dtype)
        else:
            scales = fn(self.packed_scales).to(torch.float32)
            bias = self.bias if self.bias is None else fn(self.bias)
        self.packed_codes, self.packed_scales, self.bias = codes, scales, _fp32(bias)
        self._forget()
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        weight = self.quantized()
        nibbles = weight.codes.view(torch.uint8) & 0xF
        destination[prefix + "codes"] = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
        destination[prefix + "scales"] = weight.scales
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
        wanted = _KEYS if self.bias is not None else _KEYS[:2]
        found = {key: state_dict[prefix + key] for key in wanted if prefix + key in state_dict}
        if strict:
            missing_keys += [prefix + key for key in wanted if key not in found]
            names = [key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)]
            unexpected_keys += [prefix + name for name in names if name not in wanted]
        try:
            self._take(found)
        except HummingError as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'layer'}: {error}")

    def _take(self, found: dict[str, torch.Tensor]) -> None:
        """Repacks from canonical tensors; what is not in `found` stays."""
        bias = found.get("bias")
        if bias is not None:
            check_call(torch.empty(1, self.in_features), self.out_features, self.in_features, bias)
        if {"codes", "scales"} <= found.keys():
            codes = _unpaired(found["codes"], self.out_features, self.in_features)
            packed = pack(QuantizedTensor(self.spec.format, codes, found["scales"].to("cpu")))
            self.packed_codes, self.packed_scales = packed.codes, packed.scales
            self.spec = replace(LayerSpec.of(packed), table=self.spec.table)
        if bias is not None:
            self.bias_dtype = bias.dtype
            self.bias = _fp32(bias.to("cpu"))
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process: bound kernels."""
        return {**self.__dict__, "_plans": {}, "_weight": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.spec.table and not Path(self.spec.table).exists():
            self.spec = replace(self.spec, table=None)  # pickled on another machine
        self._forget()


def prepare(
    model: nn.Module,
    table: str | Path | TunedTable | None = None,
    m: int | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Binds every HummingLinear of `model` anew and compiles its kernels now; see the method.

    Raises LayoutError where the model has none.
    """
    layers = [module for module in model.modules() if isinstance(module, HummingLinear)]
    if not layers:
        raise LayoutError("prepare needs a model with HummingLinear layers; call humming.convert")
    for layer in layers:
        layer.prepare(table, m, dtype)
    return model


_PLAIN = (torch.Tensor, nn.Parameter)


def _intercepted() -> bool:
    """Whether torch must see this call: a mode is active, or a function transform or trace."""
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._is_torch_function_mode_enabled()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _require_cpu(codes: torch.Tensor) -> None:
    if codes.device.type not in ("cpu", "meta"):
        raise LayoutError(
            f"a HummingLinear must be on the CPU, the only device with kernels so far, but got "
            f"{codes.device}; move it with .to('cpu')"
        )


def _fp32(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A contiguous fp32 copy that nobody else holds."""
    return None if tensor is None else tensor.detach().to(torch.float32, copy=True).contiguous()


def _unpaired(pairs: torch.Tensor, n: int, k: int) -> torch.Tensor:
    """int8 [n, k] of a state_dict's codes uint8 [n, k / 2]."""
    if tuple(pairs.shape) != (n, k // 2) or pairs.dtype != torch.uint8:
        raise LayoutError(
            f"codes must be uint8 [{n}, {k // 2}], two a byte, but got {pairs.dtype} "
            f"{list(pairs.shape)}; load the state_dict of a layer of this shape"
        )
    pairs = pairs.to("cpu")
    nibbles = torch.stack((pairs & 0xF, pairs >> 4), dim=2).view(n, k)
    return (nibbles ^ 8).view(torch.int8) - 8  # sign extension of 4 bits
