"""The worker process: holds one problem's tensors, verifies and times what it is sent, and may die
doing so. It reads and writes no database and compiles nothing; what it is asked is in messages.py,
its other side is isolation.py."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

import torch

from humming.errors import HummingError
from humming.jit.bandwidth import read_bandwidth
from humming.spec.device import Device
from tuner.worker.bench import Bench, torch_device
from tuner.worker.bench_experts import bench_for
from tuner.worker.messages import (
    Answer,
    Baseline,
    Beat,
    Done,
    Open,
    Race,
    Rate,
    ReadLimit,
    Request,
    Trial,
)
from tuner.worker.pinning import pin

_PR_SET_PDEATHSIG = 1  # prctl(2)

BEAT_S = 1.0
"""Seconds between signs of life while a request is answered."""


class Heart:
    """Tells the other side, from a thread of its own, how far the answer is. The thread lives on
    while a kernel hangs, which is how a hang is told from a slow machine: steps stand still."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._stage, self._steps = "starting", 0
        self._busy = threading.Event()
        threading.Thread(target=self._beat, daemon=True, name="humming-heart").start()

    def step(self, stage: str) -> None:
        """A step begins."""
        self._stage = stage
        self._steps += 1

    def receive(self) -> Any:
        """The next request; beats until it is answered."""
        request = self._pipe.recv()
        self.step("starting")
        self._busy.set()
        return request

    def answer(self, answer: Any) -> None:
        """Sends the answer of the request; then no beat."""
        self._busy.clear()
        with self._lock:
            self._pipe.send(answer)

    def _beat(self) -> None:
        pause = threading.Event()
        while True:
            self._busy.wait()
            pause.wait(BEAT_S)
            with self._lock:
                if self._busy.is_set():
                    try:
                        self._pipe.send(Beat(self._stage, self._steps))
                    except OSError:  # the other side is gone, and soon so is this process
                        return


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
        pin(device.threads or 1)
        torch.set_num_threads(device.threads or 1)
    pipe.send(Done())
    heart = Heart(pipe)
    bench: Bench | None = None
    while True:
        request: Request = heart.receive()
        try:
            if isinstance(request, Open):
                bench = None  # two problems' tensors at once might not fit
                bench = bench_for(request, device, heart.step)
                heart.answer(bench.opened())
            else:
                with torch.inference_mode():
                    heart.answer(answer(request, bench, device))
        except HummingError as error:
            heart.answer(error)


def main() -> None:
    """Entry point of `python -m tuner.worker.process FD`: dies with its parent, ignores the
    terminal's Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
