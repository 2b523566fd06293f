"""Our end of the peer humming-kernels, which runs in a process of its own (peer_server.py)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gemm_formats import compared
from humming.errors import HummingError

_SERVER = Path(__file__).with_name("peer_server.py")


class PeerLostError(HummingError):
    """The peer's process has ended unasked; another one has begun, which knows no weight yet."""


class PeerProcess:
    """A peer on the same GPU. `folder` is where humming-kernels was installed, by `pip install
    --target`. Raises PeerLostError where it ends unasked."""

    server = _SERVER

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start()

    def _start(self) -> None:
        self._said = tempfile.TemporaryFile(  # noqa: SIM115  (lives as long as the process)
            "w+", errors="replace"
        )
        self._process = subprocess.Popen(
            [sys.executable, str(self.server)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd=self._folder,  # not the repository, where ours would be found first
            env={**os.environ, "PYTHONPATH": str(self._folder)},
            text=True,
        )

    def open(self, n: int, k: int, format: str) -> None:
        """Makes the layers of one shape and format."""
        self._ask({"open": [rows_made(n, format), k], **_layer(format)})

    def prepare(self, m: int) -> None:
        """Makes the graph of one m."""
        self._ask({"m": m})

    def sample(self, replays: int) -> float:
        """Median microseconds per call over replays of the graph."""
        return float(self._ask({"sample": replays})["us"])

    def start_warming(self, points: Sequence[tuple[int, int, int]], format: str) -> None:
        """Asks for kernels of (n, k, m) to be compiled; `wait` says when they are."""
        warm = [[rows_made(n, format), k, m] for n, k, m in points]
        self._send({"warm": warm, **_layer(format)})

    def wait(self, seconds: float) -> bool:
        """Whether an answer came in time."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._send(request)
        return self._answer()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._lost() from error

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._lost()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self) -> PeerLostError:
        self._process.kill()
        self._process.communicate()
        self._said.seek(0)
        last = self._said.read().strip().rpartition("\n")[2]
        self._said.close()
        self._start()  # for the next weight
        return PeerLostError(f"the peer process has ended; its last words: {last or 'none'}")


def rows_made(n: int, format: str) -> int:
    """Rows of the peer's weight: it takes no scales of blocks that n ends within, so that its times
    are those of a weight of whole blocks."""
    block = int(compared(format).peer.get("group_size_n", 1))
    return -(-n // block) * block


def _layer(format: str) -> dict[str, Any]:
    return {"weight": compared(format).peer, "input": compared(format).peer_inputs}


class Warming:
    """The peer's kernels for all points, compiled into its own cache by a process a shape while we
    do something else."""

    def __init__(
        self,
        folder: Path,
        shapes: Sequence[tuple[int, int]],
        m_values: Sequence[int],
        formats: Sequence[str],
    ) -> None:
        self._peers = []
        for format in formats:
            for n, k in shapes:
                peer = PeerProcess(folder)
                peer.start_warming([(n, k, m) for m in m_values], format)
                self._peers.append(peer)

    def finish(self, seconds: float) -> None:
        """Waits for all, `seconds` at the most; what is missing then is compiled when it is met."""
        deadline = time.monotonic() + seconds
        for peer in self._peers:
            peer.wait(max(0.0, deadline - time.monotonic()))
            peer.close()
