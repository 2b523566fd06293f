"""A CUDA kernel in this process: what every family's checks, and on which GPUs it is loaded.

What a family enqueues is load.py beside this; talking to the driver is driver.py.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, NamedTuple

import torch

from humming.errors import KernelLoadError, LaunchError, LayoutError
from humming.jit.cache import CompiledKernel, read_library
from humming.jit.cuda.driver import DeviceFunction
from humming.jit.cuda.input_quantizer import InputQuantizer, InputRecipe, input_quantizer
from humming.jit.cuda.launcher import PreparedCall
from humming.jit.cuda.recording import recorded
from humming.jit.load import TORCH_DTYPES, PackedOperand
from humming.spec.config import config_from_dict

ALIGNMENT = 16
"""Bytes; what packed weights and workspaces begin at a multiple of."""

_LOCK = threading.Lock()
_SEEN: dict[int, weakref.ref[torch.Tensor]] = {}
"""Id -> weights that a kernel has read before; see `launched_before`."""


class CudaKernel(ABC):
    """A kernel in this process: one object serves all shapes, streams, threads and GPUs.

    Calls never synchronise, and may be captured into a CUDA graph once the kernel is loaded on the
    GPU, which `load` does for its device and a first call does for another one.

    Where the format quantizes activations, a call does that first, by the kernel `input`, into the
    beginning of its workspace: to codes and scales where products are made of those, else to
    numbers of x's type.
    """

    name: str
    takes_permutation = False
    """Whether x may be gathered on its way in."""
    replayable = True
    """Whether a call is launches of such functions and nothing else, so that recording those, and
    making them again with other addresses, makes the call again."""

    def __init__(self, compiled: CompiledKernel) -> None:
        static = compiled.source.static
        self.compiled = compiled
        self._dtype = TORCH_DTYPES[static["activation_dtype"]]
        self._scale_dtype = TORCH_DTYPES[str(static["scale"]).lower()]
        self._has = (bool(static["has_zero_points"]), bool(static["has_row_scales"]))
        self._smem_bytes = int(static.get("smem_bytes", 0))
        self._functions: dict[int, DeviceFunction] = {}
        recipe = static.get("input_recipe")
        self.input: InputQuantizer | None = None
        if recipe is not None:
            self.input = input_quantizer(InputRecipe(**recipe))
        self._multiplies_codes = recipe is not None and recipe["output"] != "numbers"

    def workspace_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:
        """Bytes of scratch memory that a launch of this shape needs; 0 = none."""
        made = 0 if self.input is None else self.input.nbytes(m, k)
        return made + self.scratch_bytes(m, n, k, threads)

    @abstractmethod
    def scratch_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int:
        """Those of the kernel itself, quantized x apart."""

    def launch(
        self,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None = None,
        threads: int = 1,  # noqa: ARG002  (as CPU kernels take it)
    ) -> None:
        """Enqueues `out[m, n] = x[m, k] @ w.T + bias[n]` on torch's current stream of x's GPU.

        x and out have the kernel's dtype and a last stride of 1; rows may be strided, and begin at
        any multiple of 2 bytes. bias is fp32 (another float dtype is converted on each call).
        workspace is a contiguous tensor of at least `workspace_bytes`, on the same GPU, that no
        other stream uses meanwhile; None allocates one. Raises LayoutError where an operand does
        not fit, LaunchError where the driver refuses.
        """
        self._check(x, packed, bias, out)
        if not x.shape[0]:
            return
        function = self.function(x.device.index)
        if self.input is None:
            self._enqueue(function, x, packed, bias, out, workspace)
            return
        room = self._room(x, workspace, self.workspace_bytes(x.shape[0], packed.n, packed.k))
        room = room.view(-1).view(torch.uint8)
        made = self.input.enqueue(x, room, packed.permutation, _input_scale(packed))
        rest = room[self.input.nbytes(*x.shape) :]
        packed = _in_order(packed)
        if made.scales is None:
            self._enqueue(function, made.codes, packed, bias, out, rest)
        else:
            self._enqueue_codes(function, made.codes, made.scales, packed, bias, out, rest)

    def launch_quantized(
        self,
        codes: torch.Tensor,
        scales: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None = None,
    ) -> None:
        """`launch` on x that is quantized: `codes` and `scales` as jit/cuda/input_quantizer.py
        makes them, in the order of the weight's columns; of a kernel that multiplies codes."""
        if not self._multiplies_codes:
            raise LayoutError("this kernel multiplies numbers of 16 bits; call launch with x")
        self._check_parts(packed)
        if codes.shape[0]:
            function = self.function(codes.device.index)
            packed = _in_order(packed)
            self._enqueue_codes(function, codes, scales, packed, bias, out, workspace)

    def prepared(
        self,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor,
    ) -> PreparedCall | None:
        """A call like this one, of other x, out and workspace of the same shapes and strides; None
        where it needs more than launches, or for no rows. Enqueues nothing.

        Operands are those of `launch`, which must have been called for this weight before.
        """
        if not self.replayable or not x.shape[0]:
            return None
        spans = [(t.data_ptr(), t.nbytes) for t in (x, out, workspace)]
        parts = (packed.codes, packed.scales, packed.zero_points, packed.row_scales)
        further = (packed.permutation, _input_scale(packed), bias)
        kept = [t for t in (*parts, *further) if t is not None]
        found = recorded(lambda: self.launch(x, packed, bias, out, workspace), spans, kept)
        return None if found is None else PreparedCall(*found)

    def function(self, index: int) -> DeviceFunction:
        """The kernel on GPU `index`, loaded at the first asking.

        Raises LaunchError where that falls into a graph capture, which must not load anything.
        """
        function = self._functions.get(index)
        if function is None:
            if torch.cuda.is_current_stream_capturing():
                raise LaunchError(
                    "a kernel must be loaded before a CUDA graph is captured; call prepare(), or "
                    "the layer once, before the capture"
                )
            with _LOCK:
                function = self._functions.get(index) or self._load_on(index)
            if self.input is not None:
                self.input.function(index)
        return function

    def resources(self) -> dict[str, int]:
        """`registers` of a thread, `local_bytes` that it spills, `smem_bytes` of a block."""
        return next(iter(self._functions.values())).resources()

    def _load_on(self, index: int) -> DeviceFunction:
        try:
            cubin = read_library(self.compiled.path)
        except OSError as error:
            raise KernelLoadError(f"kernel {self.compiled.key} cannot be read: {error}") from error
        function = DeviceFunction(cubin, self.name, index, self._smem_bytes)
        self._functions[index] = function
        return function

    @staticmethod
    def _room(x: torch.Tensor, workspace: torch.Tensor | None, needed: int) -> torch.Tensor:
        """The caller's workspace, or `needed` bytes of our own. Raises LaunchError where that of
        the caller is too small or unaligned."""
        if workspace is None:
            return x.new_empty(needed, dtype=torch.uint8)
        if workspace.nbytes < needed or workspace.data_ptr() % ALIGNMENT:
            raise LaunchError(
                f"the workspace must have {needed} bytes from a multiple of {ALIGNMENT} on, but "
                f"got {workspace.nbytes} bytes"
            )
        return workspace

    def _enqueue(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Enqueues a call whose operands were checked, with `m >= 1`: (function, x, packed, bias,
        out, workspace)."""
        raise LaunchError(f"{self.name} multiplies codes, not numbers of 16 bits")

    def _enqueue_codes(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """The same of quantized x, of a family that multiplies codes: (function, codes, scales,
        packed, bias, out, workspace), `codes` and `scales` as in `launch_quantized`."""
        raise LaunchError(f"{self.name} multiplies numbers of 16 bits, not codes")

    def _check(
        self,
        x: torch.Tensor,
        packed: PackedOperand,
        bias: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        n, k, dtype = packed.n, packed.k, self._dtype
        if x.dtype != dtype or x.ndim != 2 or x.shape[1] != k or x.stride(1) != 1:
            raise LayoutError(f"x must be {dtype} [m, {k}] with contiguous rows, but got {_of(x)}")
        if out.dtype != dtype or tuple(out.shape) != (x.shape[0], n) or out.stride(1) != 1:
            raise LayoutError(
                f"out must be {dtype} [{x.shape[0]}, {n}] with contiguous rows, but got {_of(out)}"
            )
        codes, scales = packed.codes, packed.scales
        if scales.dtype != self._scale_dtype:
            raise LayoutError(
                f"scales must have the activations' type {self._scale_dtype}, but got "
                f"{scales.dtype}; convert the layer or its inputs"
            )
        self._check_parts(packed)
        if not (x.is_cuda and x.device == out.device == codes.device == scales.device):
            raise LayoutError(
                f"x, out and the weight must be on one GPU, but got {x.device}, {out.device} and "
                f"{codes.device}"
            )
        if bias is not None and (tuple(bias.shape) != (n,) or bias.device != x.device):
            raise LayoutError(f"bias must be [{n}] on {x.device}, but got {_of(bias)}")

    def _check_parts(self, packed: PackedOperand) -> None:
        """What the kernel was compiled for is what the weight has."""
        zeros, rows, order = packed.zero_points, packed.row_scales, packed.permutation
        if ((zeros is not None), (rows is not None)) != self._has:
            self._refuse_parts(packed)
        if order is not None and not self.takes_permutation and self.input is None:
            raise LayoutError(
                "this kernel was compiled without act-order, but the weight has a permutation; "
                "compile it for a problem with act_order=True"
            )
        if (
            packed.codes.data_ptr() % ALIGNMENT
            or packed.scales.data_ptr() % ALIGNMENT
            or (zeros is not None and zeros.data_ptr() % ALIGNMENT)
            or (rows is not None and rows.data_ptr() % ALIGNMENT)
            or (order is not None and order.data_ptr() % ALIGNMENT)
        ):
            raise LayoutError("packed tensors must begin at a multiple of 16 bytes")

    def _refuse_parts(self, packed: PackedOperand) -> None:
        static = self.compiled.source.static
        for name, wanted in zip(("zero_points", "row_scales"), self._has, strict=True):
            if (getattr(packed, name) is not None) != wanted:
                raise LayoutError(
                    f"a weight of format '{static['format']}' must come "
                    f"{'with' if wanted else 'without'} {name}; pack it with humming.quantize.pack"
                )


class _InOrder(NamedTuple):
    """A packed weight for x whose columns were gathered."""

    n: int
    k: int
    codes: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor | None
    row_scales: torch.Tensor | None
    permutation: torch.Tensor | None = None


def _input_scale(packed: PackedOperand) -> torch.Tensor | None:
    """The scale of a static format; experts have none."""
    found: torch.Tensor | None = getattr(packed, "input_scale", None)
    return found


def _in_order(packed: PackedOperand) -> PackedOperand:
    if packed.permutation is None:
        return packed
    parts = (packed.codes, packed.scales, packed.zero_points, packed.row_scales)
    return _InOrder(packed.n, packed.k, *parts)


def _of(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} {list(tensor.shape)} with strides {list(tensor.stride())} on {tensor.device}"


def config_of(compiled: CompiledKernel, kind: type[Any]) -> Any:
    """The config that was rendered into the source."""
    names = ("family", *(field.name for field in fields(kind)))
    return config_from_dict({name: compiled.source.static[name] for name in names})


def launched_before(codes: torch.Tensor) -> bool:
    """Whether these weights were there before the kernel that the next launch may overtake.

    A dependent launch reads weights while the kernel before it still runs, which may be the one
    that writes them; so the first launch of a weight waits. Inside a graph capture it need not.
    """
    seen = _SEEN.get(id(codes))
    if seen is not None and seen() is codes:
        return True
    key = id(codes)
    _SEEN[key] = weakref.ref(codes, lambda _: _SEEN.pop(key, None))
    return codes.is_cuda and torch.cuda.is_current_stream_capturing()
