"""Content-addressed store of compiled kernels: from a config to a library file. Loading is load.py.

An entry is one file, `<source key>-<compiler key>` with the suffix .so or .cubin: the library, then
a trailer with its SHA-256. A loader ignores the trailer, and one file is replaced atomically, so a
reader sees a whole entry or none.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from humming.errors import CompilerNotFoundError
from humming.jit import nvrtc
from humming.jit.compiler import BASE_FLAGS, Compiler, compile_source, find_compiler
from humming.jit.source import KernelSource, companions, render
from humming.settings import cache_dir
from humming.spec.canonical import content_hash
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem

TIMEOUT_S = 60.0
"""A compiler that takes longer is ended."""

_TRAILER_MAGIC = b"HUMMING1"
_TRAILER_BYTES = len(_TRAILER_MAGIC) + hashlib.sha256().digest_size


@dataclass(frozen=True)
class CompiledKernel:
    """A library file. `compile_s` is the seconds that compiling took, 0 where the cache had it."""

    key: str
    path: Path
    source: KernelSource
    compile_s: float


class KernelCache:
    """A folder of compiled kernels of one kind, by their `suffix`. It is made by the first write; a
    read-only one with entries works."""

    def __init__(self, folder: Path, suffix: str = ".so") -> None:
        self.folder = folder
        self.suffix = suffix

    def get(self, key: str) -> Path | None:
        """The entry of `key`, whole and checked; a damaged one is removed and counts as absent."""
        path = self.folder / f"{key}{self.suffix}"
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if _is_whole(data):
            return path
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def find(self, source_key: str) -> tuple[str, Path] | None:
        """Key and entry of a source by whatever compiler, for a machine that has none."""
        for path in sorted(self.folder.glob(f"{source_key}-*{self.suffix}")):
            if self.get(path.stem):
                return path.stem, path
        return None

    def put(self, key: str, library: bytes) -> Path:
        """Writes an entry atomically. Raises OSError where the folder cannot be written."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{key}{self.suffix}"
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(library + _TRAILER_MAGIC + hashlib.sha256(library).digest())
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        return path


_PRIVATE: dict[int, Path] = {}
"""Process id -> its private folder, where the shared one could not be written."""


def source_key(source: KernelSource, arch: str) -> str:
    """Names what is compiled: text, headers, flags and architecture; no path, no time."""
    base_flags = nvrtc.NVRTC_FLAGS if source.language == "cuda" else BASE_FLAGS
    return content_hash(
        [source.language, source.text, source.headers, base_flags, source.flags, arch]
    )


def compile_key(source: KernelSource, compiler: Compiler, arch: str) -> str:
    """Names the result of compiling `source` with `compiler` for `arch`."""
    return f"{source_key(source, arch)}-{content_hash([compiler.name, compiler.version])[:16]}"


def compiled(
    config: KernelConfig, problem: Problem, device: Device, timeout_s: float = TIMEOUT_S
) -> CompiledKernel:
    """The library of `config` for `problem` on `device`, from the cache or compiled now, in at most
    `timeout_s`.

    Raises CompilerNotFoundError where it is not cached and there is no compiler, CompileError where
    the compiler fails.
    """
    source = render(config, problem)
    is_cuda = source.language == "cuda"
    arch = nvrtc.nvrtc_arch(source, device) if is_cuda else device.arch
    for beside in companions(source):
        compiled_source(beside, nvrtc.nvrtc_arch(beside, device), timeout_s)
    return compiled_source(source, arch, timeout_s)


def compiled_source(
    source: KernelSource, arch: str, timeout_s: float = TIMEOUT_S
) -> CompiledKernel:
    """The library of any rendered source; see `compiled`. `arch` is Device.arch, or NVRTC's name of
    a GPU's. A cache that cannot be written is replaced by a private folder."""
    is_cuda = source.language == "cuda"
    suffix = ".cubin" if is_cuda else ".so"
    cache = KernelCache(cache_dir() / "kernels", suffix)
    try:
        compiler = nvrtc.find_nvrtc() if is_cuda else find_compiler()
    except CompilerNotFoundError:
        found = cache.find(source_key(source, arch))
        if found is None:
            raise
        return CompiledKernel(found[0], found[1], source, 0.0)
    key = compile_key(source, compiler, arch)
    private = _PRIVATE.get(os.getpid())
    path = cache.get(key) or (KernelCache(private, suffix).get(key) if private else None)
    if path is not None:
        return CompiledKernel(key, path, source, 0.0)
    start = time.perf_counter()
    library = (
        nvrtc.compile_cubin(source, arch, timeout_s).data
        if is_cuda
        else compile_source(source, compiler, timeout_s)
    )
    compile_s = time.perf_counter() - start
    try:
        path = cache.put(key, library)
    except OSError:
        path = KernelCache(_private_folder(), suffix).put(key, library)
    return CompiledKernel(key, path, source, compile_s)


def read_library(path: Path) -> bytes:
    """The library of an entry, without its trailer. Raises OSError where it is gone or damaged."""
    data = path.read_bytes()
    if not _is_whole(data):
        raise OSError(f"{path} is damaged; remove it")
    return data[:-_TRAILER_BYTES]


def _private_folder() -> Path:
    """A folder of this process alone, removed when it ends; a forked child makes its own."""
    pid = os.getpid()
    if pid not in _PRIVATE:
        folder = Path(tempfile.mkdtemp(prefix="humming-"))
        atexit.register(lambda: shutil.rmtree(folder) if os.getpid() == pid else None)
        _PRIVATE[pid] = folder
    return _PRIVATE[pid]


def _is_whole(data: bytes) -> bool:
    library, trailer = data[:-_TRAILER_BYTES], data[-_TRAILER_BYTES:]
    return trailer == _TRAILER_MAGIC + hashlib.sha256(library).digest()
