"""Which process wrote a row, and whether it still lives. Nothing about databases here.

Pids mean something in their own pid namespace alone: a process of another one, as in another
container under this host's name, can be asked no more than one of another host.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

_SEPARATOR = " in "


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


def stamp() -> dict[str, str | int]:
    """This process as columns of a row: host, pid, process_started."""
    pid = os.getpid()
    since = f"{started(pid) or ''}{_SEPARATOR}{_namespace()}"
    return {"host": host(), "pid": pid, "process_started": since}


def elsewhere(host_name: str, process_started: str) -> bool:
    """Whether the process that stamped a row is of another host or pid namespace, so that nothing
    here tells whether it lives."""
    _, _, namespace = process_started.partition(_SEPARATOR)
    return host_name != host() or (bool(namespace) and namespace != _namespace())


def gone(host_name: str, pid: int, process_started: str) -> bool:
    """Whether the process that stamped a row could be asked from here and lives no more."""
    since, _, _ = process_started.partition(_SEPARATOR)
    return not elsewhere(host_name, process_started) and started(pid) != since


def started(pid: int) -> str | None:
    """A text that two processes with the same pid never share: boot id and start tick; None where
    no such process lives.

    A zombie counts as gone: it will never finish anything. Without /proc the text is empty, and the
    pid alone decides.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() or not _exists(pid) else ""
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{_boot_id()}:{fields[19]}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@lru_cache(maxsize=1)
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
