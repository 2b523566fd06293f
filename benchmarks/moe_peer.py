"""Our end of the peer humming-kernels with experts, which runs in a process of its own
(moe_peer_server.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gemm_formats import compared
from benchmarks.gemm_peer import PeerProcess
from benchmarks.moe_layers import DRAWS, Layer


class ExpertsPeer(PeerProcess):
    """The peer's grouped GEMM, or a whole block of it."""

    server = Path(__file__).with_name("moe_peer_server.py")

    def open_layer(self, layer: Layer, format: str) -> None:
        """Makes one layer."""
        self._ask(_asked(layer, format))

    def open_blocks(self, sizes: Mapping[str, int], format: str) -> None:
        """Makes whole blocks."""
        self._ask({"block": dict(sizes), "weight": compared(format).peer})

    def start_warming_layer(self, layer: Layer, format: str, m_values: Sequence[int]) -> None:
        """Asks for the kernels of these m; `wait` says when they are compiled."""
        self._send({**_asked(layer, format), "warm": list(m_values)})

    def prepare_routed(self, m: int) -> None:
        """Makes the graph of one m."""
        self._ask({"m": m, "draws": DRAWS})


def _asked(layer: Layer, format: str) -> dict[str, Any]:
    named = compared(format)
    return {"open": vars(layer), "weight": named.peer, "input": named.peer_inputs}


def start_warming(
    folder: Path, layers: Iterable[Layer], formats: Sequence[str], m_values: Sequence[int]
) -> list[ExpertsPeer]:
    """The peer's kernels, compiled into its own cache by a process a layer and format."""
    peers = []
    for layer in layers:
        for format in formats:
            peer = ExpertsPeer(folder)
            peer.start_warming_layer(layer, format, m_values)
            peers.append(peer)
    return peers
