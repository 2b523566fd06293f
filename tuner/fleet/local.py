"""`--fleet`: a member process for each device of this host, started, watched, and started again
where it dies. What a member does is member.py."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from humming.errors import HummingError, UsageError
from humming.jit.detect import usable_gpus
from humming.jit.identity import here, serving_device
from humming.spec.device import Device
from humming.spec.identity import Identity
from tuner.fleet.work import Order, Result, Work
from tuner.planning.budget import Budget

STARTS = 4
"""How often a member is started in all before its device is given up."""
STOP_S = 10.0

Note = Callable[[str], None]


def devices_here() -> list[Device]:
    """Every GPU of this host on which a family runs; without any, its CPU as one device."""
    return usable_gpus() or [serving_device()]


@dataclass
class _Member:
    order: Order
    name: str
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    result: Result | None = None
    error: HummingError | None = None


@dataclass
class LocalCrew:
    """The devices of this host as one crew on the database at `url`."""

    url: str = field(repr=False)
    devices: Sequence[Device]

    @property
    def identity(self) -> Identity:
        """What the evidence of the first device is true of."""
        return here(self.devices[0])

    def run(
        self,
        work: Work,
        until: datetime | None,
        budget: Budget,
        note: Note,
        tick: Callable[[], None],
    ) -> list[Result]:
        """One member a device until all have ended. Raises HummingError where none could work."""
        members = [
            _Member(Order(work, self.url, device, until, cpus), f"{device.name} ({index})")
            for index, (device, cpus) in enumerate(zip(self.devices, self._cpus(), strict=True))
        ]
        said: queue.SimpleQueue[tuple[_Member, dict[str, Any] | None]] = queue.SimpleQueue()
        try:
            for member in members:
                _start(member, said)
            while any(member.process for member in members):
                with contextlib.suppress(queue.Empty):
                    _take(*said.get(timeout=1.0), said, budget, note)
                tick()
        finally:
            _stop(members)
        results = [member.result for member in members if member.result]
        errors = [member.error for member in members if member.error]
        if errors and not results:
            raise errors[0]
        return results

    def _cpus(self) -> list[tuple[int, ...]]:
        """An equal share of this process's CPUs for each member, as compilers of one must not
        disturb another's timing."""
        cpus, count = sorted(os.sched_getaffinity(0)), len(self.devices)
        if count == 1 or len(cpus) < count:
            return [()] * count
        each = len(cpus) // count
        return [tuple(cpus[i * each : (i + 1) * each]) for i in range(count)]


def _start(member: _Member, said: queue.SimpleQueue[Any]) -> None:
    member.starts += 1
    # Of a session of its own: the terminal's Ctrl-C reaches it by way of us, once.
    member.process = process = subprocess.Popen(
        [sys.executable, "-m", "tuner.fleet.member"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        pickle.dump(member.order, process.stdin)
    lines = process.stdout

    def read() -> None:
        with lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    said.put((member, json.loads(line)))
        said.put((member, None))

    threading.Thread(target=read, name="humming-member", daemon=True).start()


def _take(
    member: _Member,
    message: dict[str, Any] | None,
    said: queue.SimpleQueue[Any],
    budget: Budget,
    note: Note,
) -> None:
    """What a member said, or that it ended."""
    if message is None:
        assert member.process is not None
        code, member.process = member.process.wait(), None
        if member.result or member.error:
            return
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if member.starts < STARTS and not budget.over:
            note(f"{member.name}: its process ended by {how}; started again")
            _start(member, said)
            return
        member.error = HummingError(f"the tuning process of {member.name} ended by {how}")
        note(str(member.error))
    elif "note" in message:
        note(f"{member.name}: {message['note']}")
    elif "error" in message:
        kind = UsageError if message["exit_code"] == UsageError.exit_code else HummingError
        member.error = kind(message["error"])
        note(f"{member.name}: {message['error']}")
    else:
        values = message["result"]
        member.result = Result(values["device"], values["measured"])


def _stop(members: Sequence[_Member]) -> None:
    """Ctrl-C to all that still run, which keep what they measured; then a kill."""
    running = [member.process for member in members if member.process]
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            continue
        process.kill()
        process.wait()
