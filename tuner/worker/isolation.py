"""The tuner's side of a worker process that may die: start, ask with a time limit, kill, start
again. What the worker does is process.py."""

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
from tuner.worker.messages import Answer, Beat, Request

START_TIMEOUT_S = 60.0
STARTS = 3
"""In a row, of a worker that others end while it starts."""

SILENCE_S = 30.0
"""A worker that gives no sign of life for so long is stopped, or starves: it is ended."""

KILL_S = 5.0
"""How long a killed worker is waited for: the driver of a GPU first ends what hangs there."""

HUNG_S = 2.0
"""Steps take milliseconds: where the time of a request ends after so long a step, it may hang."""


class WorkerLostError(HummingError):
    """The worker died or was killed while it answered. `outcome` is "crashed" or "timeout".

    `by_others` where something else than the candidate may have ended it (SIGKILL, by which a
    system short of memory ends processes too); `hung` where its steps stood still.
    """

    def __init__(
        self,
        outcome: Literal["crashed", "timeout"],
        detail: str,
        by_others: bool = False,
        hung: bool = False,
    ) -> None:
        super().__init__(detail)
        self.outcome: Literal["crashed", "timeout"] = outcome
        self.by_others, self.hung = by_others, hung


class Worker:
    """A worker process for one device, started on first use and again after each loss.

    A process of its own, not a thread or a fork: an illegal access must not take the tuner along,
    and a GPU context does not survive a fork. `python -m tuner.worker.process` rather than
    multiprocessing's spawn, which imports the caller's main module.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._log: IO[bytes] | None = None
        self._reopen: Request | None = None
        self._starts = 0  # in a row that came to nothing

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

    def ask(self, request: Request, timeout_s: float, stall_s: float | None = None) -> Answer:
        """The worker's answer. Raises WorkerLostError where it dies, takes longer than `timeout_s`,
        gives no sign of life for SILENCE_S, or stands at one step for `stall_s`."""
        if self._process is None:
            start = time.monotonic()
            self._start(timeout_s)
            if self._reopen is not None and self._reopen is not request:
                self._exchange(self._reopen, min(START_TIMEOUT_S, timeout_s))
            if timeout_s < START_TIMEOUT_S:  # else a start is not the request's to pay for
                timeout_s = max(0.0, timeout_s - (time.monotonic() - start))
        return self._exchange(request, timeout_s, stall_s)

    def close(self) -> None:
        """End the worker; killing it is safe, since it keeps nothing."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold it for long
                self._process.wait(KILL_S)
        if self._pipe is not None:
            self._pipe.close()
        if self._log is not None:
            self._log.close()
        self._process = self._pipe = self._log = None

    def _start(self, timeout_s: float) -> None:
        self._starts, begun = self._starts + 1, time.monotonic()
        ours, theirs = Pipe()
        # A file without a name: nothing stays behind where we are killed.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the worker)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tuner.worker.process", str(theirs.fileno())],
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
                self._starts = 0
                raise
            if lost.by_others and self._starts < STARTS:  # the next may be let live
                self._start(max(0.0, timeout_s - (time.monotonic() - begun)))
                return
            # Not the candidate's doing, and the next start would end alike.
            self._starts = 0
            raise HummingError(f"the worker process does not start: {lost}") from None
        self._starts = 0

    def _exchange(
        self, message: Request | Device, timeout_s: float, stall_s: float | None = None
    ) -> Answer:
        assert self._pipe is not None  # _start() ran
        watchdog = _Watchdog(timeout_s, stall_s)
        try:
            self._pipe.send(message)
            answer: Answer | Beat | HummingError | None = None
            while answer is None or isinstance(answer, Beat):
                if not self._pipe.poll(watchdog.wait_s()):
                    self._give_up(watchdog)
                answer = self._pipe.recv()
                if isinstance(answer, Beat) and watchdog.stalled(answer):
                    self._give_up(watchdog)
        except (EOFError, OSError):
            raise self._obituary() from None
        if isinstance(answer, HummingError):
            raise answer
        return answer

    def _give_up(self, watchdog: _Watchdog) -> None:
        self.close()
        raise WorkerLostError("timeout", watchdog.why(), hung=watchdog.hung())

    def _obituary(self) -> WorkerLostError:
        """How the worker ended, in one line; it is closed."""
        how, code = "the worker closed its pipe", 0
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
        said = f"{how}: {last}" if last else how
        return WorkerLostError("crashed", said, by_others=code == -signal.SIGKILL)


class _Watchdog:
    """The limits of one request: a time in all, silence, and how long one step may take."""

    def __init__(self, timeout_s: float, stall_s: float | None) -> None:
        self._start = self._since = self._heard = time.monotonic()
        self._timeout_s, self._stall_s = timeout_s, stall_s
        self._beat: Beat | None = None

    def wait_s(self) -> float:
        """Seconds to wait for the next message."""
        left = max(0.0, self._start + self._timeout_s - time.monotonic())
        return left if self._beat is None else min(left, SILENCE_S)

    def stalled(self, beat: Beat) -> bool:
        """Take a sign of life; whether it says that one step takes too long, or time is over."""
        self._heard = time.monotonic()
        if self._beat is None or beat.steps != self._beat.steps:
            self._since, self._beat = self._heard, beat
        over = self._heard - self._start >= self._timeout_s
        return over or (self._stall_s is not None and self._still_s() > self._stall_s)

    def hung(self) -> bool:
        """Whether the last steps stood still, though the process lived."""
        return self._beat is not None and self._still_s() > HUNG_S

    def why(self) -> str:
        """What is said of the worker."""
        at = f" while {self._beat.stage}" if self._beat else ""
        if self._stall_s is not None and self._still_s() > self._stall_s:
            return f"no step forward for {self._still_s():.0f} s{at}"
        if time.monotonic() - self._start >= self._timeout_s:
            return f"no answer within {self._timeout_s:.0f} s{at}"
        return f"no sign of life for {SILENCE_S:.0f} s{at}"

    def _still_s(self) -> float:
        return time.monotonic() - self._since


def _last_line(log: IO[bytes] | None) -> str:
    """The last line that was written, where an exception's own message stands."""
    if log is None:
        return ""
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
