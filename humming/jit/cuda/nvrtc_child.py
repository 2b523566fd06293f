"""The child process in which NVRTC runs: `nvrtc_child.py SOURCE CUBIN OPTION...`, by path.

It imports nothing of this package, as it should start at once. It writes the cubin and prints the
resource report of ptxas, or fails with the compiler's log. The parent's side is jit/nvrtc.py.
"""

import sys
from pathlib import Path


def compile_here(text: bytes, options: list[bytes]) -> tuple[bytes, str]:
    """(cubin, log) of CUDA source `text`; no cubin where NVRTC refuses it."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, None, None)
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    said = log.decode(errors="replace").strip("\0 \n")
    if int(error) != 0:
        return b"", said or str(error)
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = b" " * size
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return cubin, said


def main(source: str, target: str, *options: str) -> int:
    """The exit code: 0, or 1 where NVRTC refuses the source."""
    cubin, log = compile_here(Path(source).read_bytes(), [option.encode() for option in options])
    (sys.stdout if cubin else sys.stderr).write(log + "\n")
    if cubin:
        Path(target).write_bytes(cubin)
    return 0 if cubin else 1


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are no top-level ones
    sys.exit(main(*sys.argv[1:]))
