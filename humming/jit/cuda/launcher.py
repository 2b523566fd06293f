"""A call that was recorded, made again with other addresses: by a small native launcher that the
JIT compiles, or by the driver's Python binding where there is no C++ compiler.

The structs mirror humming/kernels/launch/launcher.cpp; recording is recording.py.
"""

from __future__ import annotations

import ctypes
import platform
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from humming.errors import CompileError, CompilerNotFoundError, KernelLoadError, LaunchError
from humming.jit.cache import compiled_source
from humming.jit.cuda.driver import driver_function, launch_attributes
from humming.jit.cuda.recording import Moving, RecordedLaunch
from humming.jit.cuda.tensor_map import PROMOTE_256, TensorMap
from humming.jit.source import launcher_source

Launch = Callable[[int, int, int, int, int], int]
"""(x, out, workspace, words, stream), addresses and a handle -> 0, or why nothing was enqueued."""

ALIGNMENT = 16
_CONSTANT, _MAP = -1, -2
_VALUES, _ATTRIBUTES = 24, 4
_MOST_MAPS = 4
_REFUSALS = (CompileError, CompilerNotFoundError, KernelLoadError, OSError)
_LOCK = threading.Lock()
_u32, _u64, _i32 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32


class _Map(ctypes.Structure):
    _fields_ = (
        ("opaque", _u64 * 16),
        ("base", _i32),
        *((name, _u32) for name in ("element", "rank", "swizzle", "promotion")),
        ("box", _u32 * 2),
        ("steps", _u32 * 2),
        ("offset", _u64),
        ("shape", _u64 * 2),
        ("row_bytes", _u64),
        ("padding", _u64 * 7),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        ("function", _u64),
        ("grid", _u32 * 3),
        ("block", _u32 * 3),
        ("smem_bytes", _u32),
        ("attribute_count", _u32),
        ("attributes", _u64 * 9 * _ATTRIBUTES),
        ("count", _i32),
        ("kind", _i32 * _VALUES),
        ("value", _u64 * _VALUES),
    )


_FUNCTIONS = {
    "launch": b"cuLaunchKernelEx",
    "encode": b"cuTensorMapEncodeTiled",
    "current": b"cuCtxGetCurrent",
    "push": b"cuCtxPushCurrent",
    "pop": b"cuCtxPopCurrent",
}


class _Call(ctypes.Structure):
    _fields_ = (
        ("calls", _u64),
        ("maps", _u64),
        ("steps", _u64),
        ("context", _u64),
        *((name, _u64) for name in _FUNCTIONS),
        *((name, _i32) for name in ("step_count", "map_count", "alignment")),
    )


class PreparedCall:
    """Recorded launches as one function. `words` is how many words it takes that are zero between
    launches, 0 for none.

    `launch` returns 0 where all was enqueued on the stream, the current one of its GPU. `native`
    tells of the launcher. What the launches read besides x must live as long as this does.
    """

    def __init__(self, launches: Sequence[RecordedLaunch], words: int) -> None:
        self.words = words
        self._launches = tuple(launches)
        library = _library()
        self.native = library is not None and _fits(self._launches)
        self.launch: Launch = self._native(library) if self.native else self._by_binding

    @property
    def calls(self) -> int:
        """How often the native launcher enqueued it; 0 without one."""
        return int(self._call.calls) if self.native else 0

    def counter(self) -> Callable[[], int]:
        """A function that says what `calls` is, and lives longer than this; for a native one."""
        call = self._call
        return lambda: int(call.calls)

    def _native(self, library: Any) -> Launch:
        maps = [
            (map_, dict(launch.moving_maps).get(place))
            for launch in self._launches
            for place, map_ in enumerate(launch.values)
            if isinstance(map_, TensorMap)
        ]
        self._maps, self._steps = _aligned_maps(len(maps)), (_Step * len(self._launches))()
        for row, (map_, moving) in zip(self._maps, maps, strict=True):
            _fill_map(row, map_, moving)
        number = 0
        for step, launch in zip(self._steps, self._launches, strict=True):
            number = _fill_step(step, launch, number)
        self._call = call = _Call()
        call.maps, call.steps = ctypes.addressof(self._maps), ctypes.addressof(self._steps)
        call.context = self._launches[0].function.context_handle
        for name, symbol in _FUNCTIONS.items():
            needed = name != "encode" or bool(maps)
            setattr(call, name, driver_function(symbol) if needed else 0)
        call.step_count, call.map_count = len(self._launches), len(maps)
        call.alignment = ALIGNMENT
        enqueue = partial(library.humming_launch, ctypes.addressof(call))
        enqueue.__dict__["keeps"] = self  # whoever has the function has what lies at that address
        return enqueue

    def _by_binding(self, x: int, out: int, workspace: int, words: int, _stream: int) -> int:
        """The same by the driver's binding."""
        if x % ALIGNMENT:
            return -1
        bases = (x, out, workspace, words)
        for launch in self._launches:
            values = [
                bases[value.base] + value.offset if isinstance(value, Moving) else value
                for value in launch.values
            ]
            for place, moving in launch.moving_maps:
                values[place] = launch.values[place].at(bases[moving.base] + moving.offset)
            try:
                launch.function.launch(
                    launch.grid,
                    launch.threads,
                    tuple(values),
                    launch.types,
                    launch.cluster,
                    launch.dependent,
                )
            except LaunchError:
                return -1
        return 0


def _fits(launches: Sequence[RecordedLaunch]) -> bool:
    maps = sum(isinstance(value, TensorMap) for launch in launches for value in launch.values)
    return maps <= _MOST_MAPS and all(len(launch.values) <= _VALUES for launch in launches)


def _fill_map(row: _Map, map_: TensorMap, moving: Moving | None) -> None:
    row.opaque[:] = map_.opaque[:]
    row.base = _CONSTANT if moving is None else moving.base
    row.offset = 0 if moving is None else moving.offset
    row.element, row.rank, row.swizzle, row.promotion = map_.element, 2, map_.swizzle, PROMOTE_256
    row.box[:], row.steps[:] = map_.box[::-1], (1, 1)
    row.shape[:], row.row_bytes = map_.shape[::-1], map_.row_bytes


def _fill_step(step: _Step, launch: RecordedLaunch, number: int) -> int:
    """Lays `launch` out; `number` is that of its first tensor map, returned is that of the next."""
    function = launch.function
    step.function, step.smem_bytes = function.handle, function.smem_bytes
    step.grid[:], step.block[:] = (*launch.grid, 1), (launch.threads, 1, 1)
    attributes = launch_attributes(launch.cluster, launch.dependent)
    step.attribute_count = len(attributes)
    for row, words in zip(step.attributes, attributes, strict=False):
        row[:] = words
    step.count = len(launch.values)
    for place, (value, kind) in enumerate(zip(launch.values, launch.types, strict=True)):
        if kind is None:
            step.kind[place], step.value[place] = _MAP, number
            number += 1
        elif isinstance(value, Moving):
            step.kind[place], step.value[place] = value.base, value.offset
        else:
            step.kind[place] = _CONSTANT
            raw = bytes(kind(value))
            step.value[place] = int.from_bytes(raw, "little")
    return number


def _aligned_maps(count: int) -> Any:
    """Rows of `_Map` from a multiple of 64 on, as the driver wants encoded maps."""
    kind = _Map * count
    room = ctypes.create_string_buffer(ctypes.sizeof(kind) + 64)
    return kind.from_buffer(room, -ctypes.addressof(room) % 64)


def native_launcher() -> bool:
    """Whether the native launcher is there, compiled and loaded now if need be."""
    return _library() is not None


def _library() -> Any:
    with _LOCK:
        return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Any:
    """The library; None, once warned, where it can be neither compiled nor loaded."""
    try:
        library = ctypes.CDLL(str(compiled_source(launcher_source(), platform.machine()).path))
    except _REFUSALS as error:
        warnings.warn(
            f"calls on a GPU take some microseconds more, as the launcher cannot be compiled: "
            f"{' '.join(str(error).split())[:200]}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    sizes = (_u64 * 3)()
    library.humming_layout(sizes)
    if tuple(sizes) != tuple(map(ctypes.sizeof, (_Call, _Step, _Map))):
        raise KernelLoadError("the launcher's structs differ from their mirror in launcher.py")
    library.humming_launch.argtypes, library.humming_launch.restype = [_u64] * 6, ctypes.c_int
    return library
