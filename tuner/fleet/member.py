"""One member of a crew: settles what it can lease on its own device. `python -m tuner.fleet.member`
is one of this host's; what starts it is local.py, or cluster.py by way of Ray."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console

from humming.errors import HummingError
from humming.jit.identity import here
from search_spaces.load import load_spaces
from tuner.fleet.misses import missed_tasks
from tuner.fleet.work import Order, Result
from tuner.pipeline import Count, settle_open
from tuner.planning.budget import Budget
from tuner.planning.tasks import make_tasks
from tuner.progress import Watch
from tuner.store.failover import open_for_tuning

_PR_SET_PDEATHSIG = 1  # prctl(2)


class _Telling(Watch):
    """A display that shows nothing, and hands notes on."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(Console(stderr=True), quiet=True)
        self._tell = tell

    def note(self, text: str) -> None:
        self._tell(text)


def carry_out(order: Order, tell: Callable[[str], None]) -> Result:
    """Settle the order's problems, together with all others who do."""
    if order.cpus:
        os.sched_setaffinity(0, order.cpus)
    work, counted = order.work, Count()
    watch = _Telling(tell)
    with open_for_tuning(order.url, watch.note) as store:
        left_s = None if order.until is None else (order.until - store.clock()).total_seconds()
        budget = Budget(None if left_s is None else max(0.0, left_s))
        identity = here(order.device)
        if work.workload is None:
            tasks, _ = missed_tasks(store, identity)
        else:
            tasks, _ = make_tasks(work.workload, work.m_values, order.device, load_spaces())
        settle_open(tasks, identity, store, budget, watch, work.since, counted)
    return Result(order.device.name, counted.trials)


def _say(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Reads a pickled order from standard input, which nobody but the parent has; answers with
    lines of JSON: notes, then a result or an error. Dies with its parent."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    order: Order = pickle.load(sys.stdin.buffer)
    try:
        result = carry_out(order, lambda text: _say(note=text))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except HummingError as error:
        _say(error=str(error), exit_code=error.exit_code)
        raise SystemExit(error.exit_code) from None
    _say(result=asdict(result))


if __name__ == "__main__":
    main()
