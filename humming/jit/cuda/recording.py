"""What a call of a kernel enqueues, written down instead: launches whose addresses are told apart
into those of x, out, the workspace and counters, and those that stay. Replaying is launcher.py.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from humming.jit.cuda.driver import DeviceFunction

BASES = ("x", "out", "workspace", "words")
"""What a launch's addresses may lie in that differs from call to call."""

Span = tuple[int, int]
"""(address, bytes) of memory."""


@dataclass(frozen=True)
class Moving:
    """An address `offset` bytes behind the base of that number in BASES."""

    base: int
    offset: int


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch: `values` are numbers, tensor maps, or Moving addresses; `moving_maps` holds the
    address of each map that is to be encoded anew, by its place among the values."""

    function: DeviceFunction
    grid: tuple[int, int]
    threads: int
    values: tuple[Any, ...]
    types: tuple[Any, ...]
    cluster: int
    dependent: bool
    moving_maps: tuple[tuple[int, Moving], ...] = ()


class _Recorder(threading.local):
    launches: list[RecordedLaunch] | None = None
    words: tuple[int, int, int] = (0, 0, 0)


RECORDER = _Recorder()
"""What this thread writes down; `launches` is None while it does not. `words` are address, bytes
and the number asked for of those that are zero between launches."""


@contextmanager
def _recording() -> Iterator[None]:
    RECORDER.launches, RECORDER.words = [], (0, 0, 0)
    try:
        yield
    finally:
        RECORDER.launches = None


def recorded(
    call: Callable[[], None],
    spans: Sequence[Span],
    kept: Sequence[torch.Tensor],
) -> tuple[list[RecordedLaunch], int] | None:
    """The launches of `call`, and how many words that are zero between launches they take.

    `spans` are x, out and the workspace of this call; `kept` the tensors that every call has. None
    where an address lies in none of them, so that the call makes something of its own.
    """
    with _recording():
        call()
        launches, (address, nbytes, words) = RECORDER.launches or [], RECORDER.words
    bases = [*spans, (address, nbytes)]
    stays = [(tensor.data_ptr(), tensor.nbytes) for tensor in kept]
    found = [_resolved(launch, bases, stays) for launch in launches]
    told = [launch for launch in found if launch is not None]
    if not found or len(told) < len(found):
        return None
    return told, words


def _resolved(
    launch: RecordedLaunch, bases: Sequence[Span], stays: Sequence[Span]
) -> RecordedLaunch | None:
    """`launch` with Moving addresses; None where one is unknown."""
    values, maps = list(launch.values), []
    for place, (value, kind) in enumerate(zip(launch.values, launch.types, strict=True)):
        if kind is None:
            address = getattr(value, "address", None)
        elif kind is ctypes.c_void_p:
            address = value
        else:
            continue
        if address == 0:
            continue
        moving = None if address is None else _within(address, bases)
        if moving is None:
            if address is None or _within(address, stays) is None:
                return None
        elif kind is None:
            maps.append((place, moving))
        else:
            values[place] = moving
    return replace(launch, values=tuple(values), moving_maps=tuple(maps))


def _within(address: int, spans: Sequence[Span]) -> Moving | None:
    for number, (start, nbytes) in enumerate(spans):
        if start and start <= address < start + max(nbytes, 1):
            return Moving(number, address - start)
    return None
