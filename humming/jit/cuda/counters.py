"""Words of GPU memory that are zero whenever no kernel uses them: where blocks of one launch count
who has come. A kernel that takes them must leave them zero.

Scratch memory that need not be zero is the caller's workspace.
"""

from __future__ import annotations

import threading

import torch

from humming.jit.cuda.recording import RECORDER

_LOCK = threading.Lock()
_LEAST_WORDS = 4096
_MOST_KEPT = 64
_EAGER: dict[tuple[int, int], torch.Tensor] = {}
"""(GPU, stream) -> its words."""
_CAPTURED: dict[tuple[int, int, int], torch.Tensor] = {}
"""(GPU, stream, capture) -> its words, which live in the graph's own memory."""


def zero_words(count: int, index: int) -> torch.Tensor:
    """At least `count` int32 zeros on GPU `index` for a launch on torch's current stream.

    Launches of one stream follow each other and share their words; streams share none, nor do
    captured graphs, where a graph zeroes its words once at each replay.
    """
    stream = torch._C._cuda_getCurrentRawStream(index)
    if torch.cuda.is_current_stream_capturing():
        words = _captured_words(count, index, (index, stream, _capture_id(stream)))
    else:
        words = eager_words(count, index, stream)
    if RECORDER.launches is not None:
        RECORDER.words = (words.data_ptr(), words.nbytes, count)
    return words


def eager_words(count: int, index: int, stream: int) -> torch.Tensor:
    """The same for `stream`, which is torch's current one and not captured. Whoever has the tensor
    may use it for this stream as long as it likes."""
    words = _EAGER.get((index, stream))
    if words is None or words.numel() < count:
        with _LOCK:
            _EAGER[index, stream] = words = _zeros(count, index)
    return words


def _captured_words(count: int, index: int, key: tuple[int, int, int]) -> torch.Tensor:
    words = _CAPTURED.get(key)
    if words is None or words.numel() < count:
        with _LOCK:
            if len(_CAPTURED) >= _MOST_KEPT:
                del _CAPTURED[next(iter(_CAPTURED))]
            _CAPTURED[key] = words = _zeros(count, index)
    return words


def _zeros(count: int, index: int) -> torch.Tensor:
    return torch.zeros(max(count, _LEAST_WORDS), dtype=torch.int32, device=f"cuda:{index}")


def _capture_id(stream: int) -> int:
    """The driver's number of the capture that `stream` is in: no two have the same."""
    from cuda.bindings import driver

    return int(driver.cuStreamGetCaptureInfo(stream)[2])
