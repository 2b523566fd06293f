"""HummingLinear: a drop-in for nn.Linear whose weight is kept packed.

Its state is packed_linear.py, the op under it serving/op.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from humming.checkpoints.folder import Checkpoint
from humming.dispatch.intervals import TunedTable
from humming.errors import FormatError, LayoutError
from humming.packed_linear import BUFFERS, PackedLinear
from humming.plan import place_of
from humming.quantize.quantizers import empty, quantize
from humming.quantize.tensor import QuantizedTensor, check_tensor, describe
from humming.serving.binding import bind, bound
from humming.serving.op import through_op
from humming.serving.operands import NO_BACKWARD, check_bias, check_call, check_tensors
from humming.serving.rows import run
from humming.spec.formats import QuantFormat
from humming.spec.layouts import row_scaled
from humming.state import ACTIVATION_DTYPES, ACTIVATIONS, packed_on_device, why_unserved
from humming.warm import autocast_dtype, has_tangent, intercepted, warm_call


class HummingLinear(PackedLinear):
    """`y[..., n] = x[..., k] @ w[n, k].T + bias[n]` with a quantized weight; x fp32, bf16 or fp16.

    The weight is kept once, packed for the device that it is on; moving the layer packs it anew.
    `state_dict` holds it in canonical form, the same on all devices: `codes` uint8 [n, ceil(k *
    bits / 8)] (side by side along k, the first in the lowest bits), then `scales`, `zero_points`,
    `global_scales` and `permutation` as a QuantizedTensor has them and where it has them, `format`
    (its name as uint8 text, which a layer of another format refuses), `bias` [n]. No backward.

    The bias is kept as fp32, which holds the other types exactly. On the CPU scales keep their
    values whatever the layer's type, and x may be of any of the three. On CUDA the layer is bf16
    or fp16, x is of the layer's type, and moving or converting the layer rounds group scales to it.

    Calls are served with torch's number of threads at the time of the call, within the CPUs that
    the process may use, or on CUDA's current stream. A layer binds to a tuned table at its first
    call or by `prepare`; records of another number of threads do not match. Before a CUDA graph is
    captured `prepare` must have been called.
    Under torch.autocast x and the output have autocast's type, as those of an nn.Linear.
    """

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

        Raises FormatError for a format that is unknown or whose activations its device does not
        take, LayoutError where the weight does not fit.
        """
        if not isinstance(linear, nn.Linear):
            raise LayoutError(
                f"from_linear takes an nn.Linear, but got {type(linear).__name__}; "
                "use from_quantized for codes and scales"
            )
        check_linear(linear, format)
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

        `dtype` is the layer's type; None takes that of the scales, or bf16 where x cannot have it,
        or where the one scale of a row is fp32 on CUDA, which serves fp16 as well. Raises
        FormatError for a format whose activations its device does not take.
        """
        if not isinstance(weight, QuantizedTensor):
            raise LayoutError(
                f"from_quantized takes a QuantizedTensor, but got {type(weight).__name__}; make "
                "one of floats with humming.quantize"
            )
        if bias is not None:
            check_bias(bias, weight.shape[0])
        own, on_cuda = weight.scales.dtype, weight.codes.is_cuda
        if own not in ACTIVATIONS or (
            on_cuda and own == torch.float32 and row_scaled(weight.weight_format)
        ):
            own = torch.bfloat16
        dtype = dtype or own
        if dtype not in ACTIVATIONS:
            raise LayoutError(f"dtype must be fp32, bf16 or fp16, but got {dtype}")
        _check_activation(weight.format, *weight.shape, dtype, weight.codes.device)
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., n] in x's dtype. Raises LayoutError where `x` does not fit or needs a gradient."""
        if _compiling():
            check_tensor(x, "x", "[..., k]")
            to = autocast_dtype(x)
            return self._through_op(x) if to is None else self._under_autocast(x, to)
        try:
            call = self._warm.get((x.shape, x.dtype, _num_threads()))
            if call is not None:
                out = call(x, self._buffers)
                if out is not None:
                    return out
        except Exception:  # one that is no such tensor: who has a right x pays for no check
            check_tensor(x, "x", "[..., k]")
            raise
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

    def _through_op(self, x: torch.Tensor) -> torch.Tensor:
        return through_op(x, self._packed(), self.bias, self.layer_text)

    def _forward_carefully(self, x: torch.Tensor) -> torch.Tensor:
        """A call that is a first one, wrong, or watched by a mode."""
        check_tensor(x, "x", "[..., k]")
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
            names = (*BUFFERS.values(), "bias")
            kept = [(name, t) for name in names if (t := self._buffers[name]) is not None]
            self._warm[x.shape, x.dtype, threads] = warm_call(plan, weight, bias, kept, x)
        return out

    def _under_autocast(self, x: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        """As nn.Linear under autocast: x and the output in autocast's type, `to`. Where kernels
        need x in the layer's type, it is taken in that."""
        needed = self.spec.x_dtype
        with torch.autocast(x.device.type, enabled=False):
            return self.forward(x.to(ACTIVATION_DTYPES[needed] if needed else to)).to(to)


def check_linear(linear: nn.Linear, format: str) -> None:
    """Raises FormatError or LayoutError where `from_linear` takes no such layer, whatever its
    weight's values."""
    weight = linear.weight
    if weight.dtype not in ACTIVATIONS:
        raise LayoutError(
            f"the weight must be fp32, bf16 or fp16, but got {describe(weight)}; convert the "
            "layer with .to(torch.float32)"
        )
    n, k = weight.shape
    if linear.bias is not None:
        check_bias(linear.bias, n)
    _check_activation(format, n, k, weight.dtype, weight.device)


def _check_activation(
    format: str, n: int, k: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Raises FormatError where x is to be quantized as nothing on `device` multiplies it."""
    if QuantFormat.parse(format).activation and device.type != "meta":
        reason = why_unserved(format, n, k, dtype, device)
        if reason:
            raise FormatError(reason)


_PLAIN = (torch.Tensor, nn.Parameter)
_compiling = torch.compiler.is_compiling  # by these names for the sake of time
_num_threads = torch.get_num_threads
_MOST_WARM = 128
"""Shapes of x that one layer keeps ready: a model has hundreds of layers, and each takes 2 KB."""
