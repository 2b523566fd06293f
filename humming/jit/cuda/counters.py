"""Words of GPU memory that are zero whenever no kernel uses them: where blocks of one launch count
who has come. A kernel that takes them must leave them zero.

Scratch memory that need not be zero is the caller's workspace.
"""

from __future__ import annotations

import threading

import torch

_LOCK = threading.Lock()
_LEAST_WORDS = 4096
_MOST_KEPT = 64
_KEPT: dict[tuple[int, int, int], torch.Tensor] = {}
"""(GPU, stream, capture or 0) -> its words."""


def zero_words(count: int, index: int) -> torch.Tensor:
    """At least `count` int32 zeros on GPU `index` for a launch on torch's current stream.

    Launches of one stream follow each other and share their words; streams share none, nor do
    captured graphs, where a graph zeroes its words once at each replay.
    """
    stream = torch._C._cuda_getCurrentRawStream(index)
    capture = _capture_id(stream) if torch.cuda.is_current_stream_capturing() else 0
    key = (index, stream, capture)
    words = _KEPT.get(key)
    if words is None or words.numel() < count:
        with _LOCK:
            if len(_KEPT) >= _MOST_KEPT:
                del _KEPT[next(iter(_KEPT))]
            words = torch.zeros(max(count, _LEAST_WORDS), dtype=torch.int32, device=f"cuda:{index}")
            _KEPT[key] = words
    return words


def _capture_id(stream: int) -> int:
    """The driver's number of the capture that `stream` is in: no two have the same."""
    from cuda.bindings import driver

    return int(driver.cuStreamGetCaptureInfo(stream)[2])
