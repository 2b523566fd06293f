"""A call that a layer has made before, kept ready: the checks that it still fits, and the launch.

First calls and wrong ones are linear.py; which kernel serves which m is plan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.autograd import forward_ad

from humming.jit.cuda.counters import eager_words
from humming.jit.cuda.launcher import ALIGNMENT
from humming.plan import SCRATCH, Plan
from humming.quantize.layout import PackedWeight
from humming.serving.rows import run

_Tensor = torch.Tensor  # these by such names for the sake of time
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._is_torch_function_mode_enabled
_tracing = torch._C._get_tracing_state
_transforms = torch._C._functorch.peek_interpreter_stack
_bytes = torch.uint8
_autocast = torch._C._is_any_autocast_enabled

Buffers = Mapping[str, torch.Tensor | None]
Served = Callable[[torch.Tensor], torch.Tensor]
WarmCall = Callable[[torch.Tensor, Buffers], torch.Tensor | None]
"""(x, the layer's buffers) -> its output; None where this is another call than was made ready."""


def intercepted() -> bool:
    """Whether torch must see a call: a mode is active, or a function transform or trace."""
    return bool(
        _dispatch_modes()
        or _function_modes()
        or _tracing() is not None
        or _transforms() is not None
    )


def has_tangent(x: torch.Tensor) -> bool:
    """Whether forward-mode differentiation asks for a derivative along `x`."""
    if forward_ad._current_level < 0:
        return False
    return forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]


def autocast_dtype(x: torch.Tensor) -> torch.dtype | None:
    """The type into which torch's autocast takes the x of a linear layer, and so its output; None
    where it leaves x alone."""
    kind = x.device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return None
    eligible = x.is_floating_point() and x.dtype is not torch.float64
    return torch.get_autocast_dtype(kind) if eligible else None


def warm_call(
    plan: Plan,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    kept: Sequence[tuple[str, torch.Tensor]],
    x: torch.Tensor,
) -> WarmCall:
    """A layer's call for the shape and type of `x` and this number of threads.

    `kept` are the buffers that `weight` and `bias` are made of, codes and scales first; one that
    was replaced or given other memory, as code that casts models does by way of `.data`, ends it.
    """
    shape, on_cpu, index = (*x.shape[:-1], weight.n), x.is_cpu, x.get_device()
    (codes_name, codes), (scales_name, scales), *more = kept
    codes_at, scales_at = codes.data_ptr(), scales.data_ptr()
    others = tuple((name, tensor, tensor.data_ptr()) for name, tensor in more)
    served = (_on_cpu if on_cpu else _on_gpu)(plan, weight, bias, shape, x)

    def call(x: torch.Tensor, buffers: Buffers) -> torch.Tensor | None:
        # One condition, and nothing that is a call where an attribute will do: this is each call's
        # price.
        if (
            type(x) is not _Tensor
            or x.is_cpu is not on_cpu
            or x.get_device() != index
            or x.requires_grad
            or x.is_neg()
            or buffers[codes_name] is not codes
            or codes.data_ptr() != codes_at
            or buffers[scales_name] is not scales
            or scales.data_ptr() != scales_at
            or buffers["bias"] is not bias
            or forward_ad._current_level >= 0
            or _dispatch_modes()
            or _function_modes()
            or _autocast()
            or _tracing() is not None
            or _transforms() is not None
        ):
            return None
        for name, tensor, address in others:
            if buffers[name] is not tensor or tensor.data_ptr() != address:
                return None
        return served(x)

    return call


def _on_cpu(
    plan: Plan,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    shape: tuple[int, ...],
    x: torch.Tensor,
) -> Served:
    """The call itself, of x like this one: a launch of the kernel that the plan chose."""
    ready, nbytes = plan.ready(x.numel() // weight.k, weight, bias)
    if ready is None:
        return lambda x: run(x, plan, weight, bias)
    launch, tally = ready, plan.tally(x.numel() // weight.k)

    def served(x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous():
            return run(x, plan, weight, bias)
        out = x.new_empty(*shape)  # a tuple takes torch longer
        if SCRATCH.size < nbytes:
            SCRATCH.of(nbytes)
        if launch(x.data_ptr(), out.data_ptr(), SCRATCH.address, nbytes):
            return run(x, plan, weight, bias)  # which says what is wrong, or serves otherwise
        tally[0] += 1
        return out

    return served


def _on_gpu(
    plan: Plan,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    shape: tuple[int, ...],
    x: torch.Tensor,
) -> Served:
    """The same on a GPU: recorded launches on the stream that is current then."""
    index, prepared, nbytes = x.get_device(), None, 0
    if x.is_contiguous() and x.data_ptr() % ALIGNMENT == 0:
        prepared, nbytes = plan.prepared(x.view(-1, weight.k), weight, bias)
    if prepared is None:
        return lambda x: run(x, plan, weight, bias)
    launch, count = prepared.launch, prepared.words
    current_stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    capturing: Callable[[], bool] = torch._C._cuda_isCurrentStreamCapturing

    def served(x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous() or (count and capturing()):  # a graph has words of its own
            return run(x, plan, weight, bias)
        out = x.new_empty(*shape)
        stream, room, words = current_stream(index), None, None
        if nbytes:
            room = x.new_empty(nbytes, dtype=_bytes)
        if count:
            words = eager_words(count, index, stream)
        if launch(
            x.data_ptr(),
            out.data_ptr(),
            0 if room is None else room.data_ptr(),
            0 if words is None else words.data_ptr(),
            stream,
        ):
            return run(x, plan, weight, bias)  # which says what is wrong, or serves otherwise
        return out

    return served
