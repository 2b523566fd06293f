"""The worker process: holds one problem's tensors, verifies and times what it is sent, and may die
doing so. It reads and writes no database and compiles nothing; what it is asked is in messages.py,
its other side is isolation.py."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from multiprocessing.connection import Connection

import torch

from humming.errors import HummingError
from humming.jit.bandwidth import read_bandwidth
from humming.spec.device import Device
from tuner.bench import Bench, torch_device
from tuner.messages import (
    Answer,
    Baseline,
    Done,
    Open,
    Race,
    Rate,
    ReadLimit,
    Request,
    Trial,
)

_PR_SET_PDEATHSIG = 1  # prctl(2)


def answer(request: Request, bench: Bench | None, device: Device) -> Answer:
    """The answer to every request but Open. Raises HummingError where no problem is open."""
    if isinstance(request, ReadLimit):
        return Rate(read_bandwidth(device, device.threads or 1))
    if bench is None:
        raise HummingError(f"{type(request).__name__} needs an open problem; send Open first")
    if isinstance(request, Trial):
        return bench.trial(request)
    if isinstance(request, Baseline):
        return bench.baseline()
    assert isinstance(request, Race)
    return bench.race(request)


def serve(pipe: Connection) -> None:
    """Answer requests until the other side is gone."""
    device: Device = pipe.recv()
    where = torch_device(device)
    if where.type == "cuda":
        torch.cuda.set_device(where)
    else:
        torch.set_num_threads(device.threads or 1)
    pipe.send(Done())
    bench: Bench | None = None
    while True:
        request: Request = pipe.recv()
        try:
            if isinstance(request, Open):
                bench = None  # two problems' tensors at once might not fit
                bench = Bench(request, device)
                pipe.send(Done())
            else:
                with torch.inference_mode():
                    pipe.send(answer(request, bench, device))
        except HummingError as error:
            pipe.send(error)


def main() -> None:
    """Entry point of `python -m tuner.worker FD`: dies with its parent, ignores the terminal's
    Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
