"""The process's thread pool for kernels, loaded on first use. It runs parts; it decides nothing."""

from __future__ import annotations

import ctypes
import platform
import threading

from humming.errors import KernelLoadError
from humming.jit.cache import compiled_source
from humming.jit.source import pool_source

_LOCK = threading.Lock()
_LIBRARY: list[tuple[ctypes.CDLL, int]] = []


def parallel_for_address() -> int:
    """Address of the C function `humming_parallel_for`, which kernels call where `threads > 1`.

    Raises CompilerNotFoundError, CompileError or KernelLoadError where the pool can be neither
    compiled nor loaded.
    """
    if not _LIBRARY:
        with _LOCK:
            if not _LIBRARY:
                _LIBRARY.append(_load())
    return _LIBRARY[0][1]


def _load() -> tuple[ctypes.CDLL, int]:
    compiled = compiled_source(pool_source(), platform.machine())
    try:
        library = ctypes.CDLL(str(compiled.path))
    except OSError as error:
        raise KernelLoadError(f"the thread pool cannot be loaded: {error}") from error
    address = ctypes.cast(library.humming_parallel_for, ctypes.c_void_p).value
    if not address:
        raise KernelLoadError(f"the thread pool {compiled.path} has no humming_parallel_for")
    return library, address
