"""What all commands do with words: print text or JSON, end on Ctrl-C, find the named device. No
commands here."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from humming.jit.detect import find_device
from humming.jit.identity import serving_device
from humming.spec.device import Device


def named_device(spec: str) -> Device:
    """The named device as a serving process will use it: a CPU with torch's number of threads."""
    device = find_device(spec)
    return serving_device() if device.kind == "cpu" else device


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends with one sentence and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("humming-tune: ended by Ctrl-C; all that was measured is kept\n")
        raise SystemExit(130) from None


def console() -> Console:
    """A console that does not squeeze tables into 80 columns where nobody looks at a terminal."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def print_json(value: Any) -> None:
    say(json.dumps(value, indent=1))


def say(text: str) -> None:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
