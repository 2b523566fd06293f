"""The child process in which NVRTC runs: `nvrtc_child.py LIBRARY SOURCE CUBIN OPTION...`, by path.

It imports nothing but of the standard library, as it should start at once: LIBRARY is the file of
NVRTC, called by its C functions. It writes the cubin and prints the resource report of ptxas, or
fails with the compiler's log. The parent's side is jit/nvrtc.py.
"""

import ctypes
import os
import sys


def compile_here(library: str, text: bytes, options: list[bytes]) -> tuple[bytes, str]:
    """(cubin, log) of CUDA source `text`; no cubin where NVRTC refuses it."""
    _load_builtins(library)
    nvrtc = ctypes.CDLL(library)
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*options)
    error = nvrtc.nvrtcCompileProgram(program, len(options), given)
    log = _bytes_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    said = log.decode(errors="replace").strip("\0 \n")
    if error:
        return b"", said or f"NVRTC error {error}"
    return _bytes_of(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), said


def _load_builtins(library: str) -> None:
    """Loads what NVRTC asks for by its name alone: that of nvidia-cuda-nvrtc 13.0, which torch's
    builds for CUDA 13.0 bring, does not look beside itself, as that of 13.5 does."""
    try:
        folder = os.path.dirname(library)  # noqa: PTH120  (pathlib takes longer to import than this)
        for name in os.listdir(folder) if folder else ():  # noqa: PTH208
            if name.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, name))  # noqa: PTH118
    except OSError:
        pass  # NVRTC itself says what it misses


def _bytes_of(size_of, get, program) -> bytes:  # type: ignore[no-untyped-def]
    """What the function `get` gives, of as many bytes as `size_of` says."""
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    get(program, room)
    return room.raw


def main(library: str, source: str, target: str, *options: str) -> int:
    """The exit code: 0, or 1 where NVRTC refuses the source."""
    with open(source, "rb") as file:  # noqa: PTH123  (pathlib takes longer to import than this)
        text = file.read()
    cubin, log = compile_here(library, text, [option.encode() for option in options])
    (sys.stdout if cubin else sys.stderr).write(log + "\n")
    if cubin:
        with open(target, "wb") as file:  # noqa: PTH123
            file.write(cubin)
    return 0 if cubin else 1


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are no top-level ones
    sys.exit(main(*sys.argv[1:]))
