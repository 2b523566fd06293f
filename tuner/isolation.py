"""The tuner's side of a worker process that may die: start, ask with a time limit, kill, start
again. What the worker does is worker.py."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection, Pipe
from types import TracebackType
from typing import IO, Literal

from humming.errors import HummingError
from humming.spec.device import Device
from tuner.messages import Answer, Request

START_TIMEOUT_S = 60.0


class WorkerLostError(HummingError):
    """The worker died or was killed while it answered. `outcome` is "crashed" or "timeout"."""

    def __init__(self, outcome: Literal["crashed", "timeout"], detail: str) -> None:
        super().__init__(detail)
        self.outcome: Literal["crashed", "timeout"] = outcome


class Worker:
    """A worker process for one device, started on first use and again after each loss.

    A process of its own, not a thread or a fork: an illegal access must not take the tuner along,
    and a GPU context does not survive a fork. `python -m tuner.worker` rather than
    multiprocessing's spawn, which imports the caller's main module.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._log: IO[bytes] | None = None
        self._reopen: Request | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self, request: Request, timeout_s: float) -> Answer:
        """`ask` for a request that sets up state; it is repeated when a lost worker is replaced."""
        self._reopen = request
        return self.ask(request, timeout_s)

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """The worker's answer. Raises WorkerLostError where it dies or takes longer than
        `timeout_s`."""
        if self._process is None:
            start = time.monotonic()
            self._start(timeout_s)
            if self._reopen is not None and self._reopen is not request:
                self._exchange(self._reopen, min(START_TIMEOUT_S, timeout_s))
            if timeout_s < START_TIMEOUT_S:  # else a start is not the request's to pay for
                timeout_s = max(0.0, timeout_s - (time.monotonic() - start))
        return self._exchange(request, timeout_s)

    def close(self) -> None:
        """End the worker; killing it is safe, since it keeps nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        if self._log is not None:
            self._log.close()
        self._process = self._pipe = self._log = None

    def _start(self, timeout_s: float) -> None:
        ours, theirs = Pipe()
        # A file without a name: nothing stays behind where we are killed.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the worker)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tuner.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        theirs.close()
        self._pipe = ours
        try:
            self._exchange(self._device, min(START_TIMEOUT_S, timeout_s))
        except WorkerLostError as lost:
            if lost.outcome == "timeout" and timeout_s < START_TIMEOUT_S:
                raise
            # Not the candidate's doing, and the next start would end alike.
            raise HummingError(f"the worker process does not start: {lost}") from None

    def _exchange(self, message: Request | Device, timeout_s: float) -> Answer:
        assert self._pipe is not None  # _start() ran
        try:
            self._pipe.send(message)
            if not self._pipe.poll(timeout_s):
                self.close()
                raise WorkerLostError("timeout", f"no answer within {timeout_s:.0f} s")
            answer: Answer | HummingError = self._pipe.recv()
        except (EOFError, OSError):
            raise WorkerLostError("crashed", self._obituary()) from None
        if isinstance(answer, HummingError):
            raise answer
        return answer

    def _obituary(self) -> str:
        """How the worker ended, in one line; then it is closed."""
        how = "the worker closed its pipe"
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(5)
                how = (
                    f"the worker died by {signal.Signals(-code).name}"
                    if code < 0
                    else f"the worker ended with exit code {code}"
                )
        last = _last_line(self._log)
        self.close()
        return f"{how}: {last}" if last else how


def _last_line(log: IO[bytes] | None) -> str:
    """The last line that was written, where an exception's own message stands."""
    if log is None:
        return ""
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
