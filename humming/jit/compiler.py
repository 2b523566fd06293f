"""The C++ compiler, the system's or PyPI's: find it, run it once on one source. Keys and caching
are cache.py."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from humming.errors import CompileError, CompilerNotFoundError
from humming.jit.source import INCLUDE_DIR, KernelSource

BASE_FLAGS = (
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-ffp-contract=off",
    "-pthread",
)
"""Flags of every compilation. Never -march=native: a kernel may run only what its code path
names."""

_ZIG_FLAGS = ("-mcpu=baseline", "-fno-sanitize=undefined")
"""Zig compiles for the very CPU that it runs on unless told otherwise."""
_ZIG_LINK_FLAGS = ("-shared", "-nostdlib")
"""Kernels need no run-time library of C++, which Zig would compile first, for a minute; what they
need of the C library, the process has."""

_WRAPPERS = ("ccache", "sccache", "distcc")
_STDERR_LINES = 12
_ERROR_LINES = 4


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: `name` is "g++", "clang++" or "zig c++", `version` the first line that it
    prints about itself, and `arguments` what makes `path` a C++ compiler."""

    path: str
    name: str
    version: str
    arguments: tuple[str, ...] = ()


def find_compiler() -> Compiler:
    """HUMMING_CXX, CXX, c++, g++, clang++, or the PyPI package ziglang: the first that is there and
    runs. HUMMING_CXX may say "zig c++" for the package too.

    Raises CompilerNotFoundError where none is, or where HUMMING_CXX names one that does not run.
    """
    explicit = os.environ.get("HUMMING_CXX")
    if explicit:
        compiler = _described(explicit)
        if compiler is None:
            raise CompilerNotFoundError(
                f"HUMMING_CXX must name a C++ compiler that runs, but got '{explicit}'; "
                f"install it or unset HUMMING_CXX"
            )
        return compiler
    for command in (os.environ.get("CXX"), "c++", "g++", "clang++", "zig c++"):
        compiler = _described(command) if command else None
        if compiler:
            return compiler
    raise CompilerNotFoundError(
        "no C++ compiler found; install g++ or clang++, or the PyPI package ziglang (the extra "
        "'zig'), or set HUMMING_CXX"
    )


def compile_source(source: KernelSource, compiler: Compiler, timeout_s: float = 60) -> bytes:
    """The shared library made of `source`.

    Raises CompileError with the compiler's last lines where it refuses, is killed, or takes longer
    than `timeout_s`.
    """
    try:
        return _compiled_in_a_folder(source, compiler, timeout_s)
    except OSError as error:
        raise CompileError(f"no place to compile in: {error}; set TMPDIR") from error


def _compiled_in_a_folder(source: KernelSource, compiler: Compiler, timeout_s: float) -> bytes:
    with tempfile.TemporaryDirectory(prefix="humming-") as folder:
        (Path(folder) / "kernel.cpp").write_text(source.text)
        for command in _commands(source, compiler):
            run_compiler([compiler.path, *compiler.arguments, *command], folder, timeout_s)
        library = Path(folder) / "kernel.so"
        if not library.is_file():
            raise CompileError(f"{compiler.path} reported success but wrote no library")
        return library.read_bytes()


def _commands(source: KernelSource, compiler: Compiler) -> list[list[str]]:
    """What the compiler is called with to make kernel.so of kernel.cpp."""
    include = ["-I", str(INCLUDE_DIR)]
    if compiler.name != "zig c++":
        return [[*BASE_FLAGS, *source.flags, *include, "-o", "kernel.so", "kernel.cpp"]]
    flags = [*(flag for flag in BASE_FLAGS if flag not in _ZIG_LINK_FLAGS), *_ZIG_FLAGS]
    return [
        [*flags, *source.flags, *include, "-c", "-o", "kernel.o", "kernel.cpp"],
        [_ZIG_FLAGS[0], *_ZIG_LINK_FLAGS, "-o", "kernel.so", "kernel.o"],
    ]


def _described(command: str) -> Compiler | None:
    try:
        words = [w for w in shlex.split(command) if Path(w).name not in _WRAPPERS]
    except ValueError:
        return None
    is_zig = bool(words) and Path(words[0]).name == "zig"
    path = shutil.which(words[0]) if words else None
    if path is None and is_zig:
        path = _packaged_zig()
    if path is None:
        return None
    return _version_of(path, ("c++",) if is_zig else (), Path(path).stat().st_mtime_ns)


def _packaged_zig() -> str | None:
    """The program of the PyPI package ziglang."""
    found = importlib.util.find_spec("ziglang")
    folders = [] if found is None else found.submodule_search_locations or []
    programs = [Path(folder) / "zig" for folder in folders]
    return next((str(program) for program in programs if program.is_file()), None)


@lru_cache(maxsize=16)
def _version_of(path: str, arguments: tuple[str, ...], _mtime_ns: int) -> Compiler | None:
    try:
        done = subprocess.run(
            [path, *arguments, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            env=_environment(),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return None
    name = "clang++" if "clang" in done.stdout.lower() else "g++"
    name = " ".join(("zig", *arguments)) if arguments else name
    return Compiler(path, name, lines[0].strip(), arguments)


def run_compiler(command: list[str], folder: str, timeout_s: float, name: str | None = None) -> str:
    """Runs a compiler in `folder` and returns what it prints; `name` stands for it in messages.

    Raises CompileError where it does not start, refuses, is killed, or takes longer than
    `timeout_s`; then it and its children are ended.
    """
    name = name or command[0]
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that a time-out ends the compiler's children too
        )
    except OSError as error:
        raise CompileError(f"{name} did not start: {error}") from error
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise CompileError(f"{name} took longer than {timeout_s:g} s") from None
    finally:
        _end(process)
    if process.returncode:
        reason = (
            f"was killed by {signal.Signals(-process.returncode).name}"
            if process.returncode < 0
            else f"failed with exit code {process.returncode}"
        )
        raise CompileError(f"{name} {reason}:\n{_telling_lines(stderr)}".rstrip(":\n"))
    return stdout


def _telling_lines(stderr: str) -> str:
    """The first errors that the compiler names, else its last lines: clang ends in notes."""
    lines = stderr.splitlines()
    errors = [line for line in lines if "error:" in line]
    return "\n".join(errors[:_ERROR_LINES] or lines[-_STDERR_LINES:])


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the compiler and its children where they still run."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}
