"""The kernels around grouped products, in this process: rows sorted by experts, tiles, activations,
sums and routing. Grouped products are experts_load.py; their source is experts_source.py."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from humming.errors import LaunchError, LayoutError
from humming.jit.cache import compiled_source, read_library
from humming.jit.cuda.driver import INT, LONG, POINTER, DeviceFunction
from humming.jit.cuda.experts_source import experts_source
from humming.jit.experts_load import RowsOperand
from humming.jit.identity import serving_device_of
from humming.jit.nvrtc import nvrtc_arch

_FLOAT = ctypes.c_float
_ROOM_BYTES = 48 << 10  # of shared memory, which every GPU has; of kernels of one block
_THREADS = 256
_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


def most_tiles(rows: int, experts: int, block_m: int) -> int:
    """The most tiles that `rows` rows of `experts` experts, and of none, can have."""
    met = min(experts + 1, rows)
    return min(rows, (rows + met * (block_m - 1)) // block_m)


def tiles_of(
    rows: RowsOperand, experts: int, block_m: int
) -> tuple[torch.Tensor | None, torch.Tensor, int]:
    """Places of the rows of each tile (None: they are as they come), the tiles, and how many these
    are at most.

    Made once for `rows` and kept with them, so that both projections of a layer share them.
    """
    made: dict[Any, torch.Tensor] = rows.made
    if block_m not in made:
        sort_rows(rows, experts, (block_m,))
    return made.get(("rows", block_m)), made[block_m], most_tiles(rows.count, experts, block_m)


def sort_rows(rows: RowsOperand, experts: int, block_ms: tuple[int, ...]) -> None:
    """Sorts indexed rows by experts, and lists the tiles of these block sizes, in one launch for
    two of them; what was made before stays."""
    made: dict[Any, torch.Tensor] = rows.made
    wanted = [block_m for block_m in dict.fromkeys(block_ms) if block_m not in made]
    if rows.grouping == "indexed" and "order" not in made and wanted:
        _sort(rows, experts, wanted[:2])
        wanted = wanted[2:]
    for block_m in wanted:
        _list_tiles(rows, experts, block_m)


def _room_for_tiles(rows: RowsOperand, experts: int, block_m: int) -> int:
    """Makes room for the tiles of a block size; how many there are at most."""
    made: dict[Any, torch.Tensor] = rows.made
    most = most_tiles(rows.count, experts, block_m)
    made[block_m] = rows.groups.new_empty((most, 4))
    if rows.grouping == "indexed":
        made["rows", block_m] = rows.groups.new_empty((most, block_m))
    return most


def _sort(rows: RowsOperand, experts: int, block_ms: list[int]) -> None:
    made: dict[Any, torch.Tensor] = rows.made
    new = rows.groups.new_empty
    made["order"], made["offsets"] = new(rows.count), new(experts + 2)
    most = [_room_for_tiles(rows, experts, block_m) for block_m in block_ms]
    warps = (_ROOM_BYTES // 4 - 2 * experts - 8) // (experts + 1)
    if warps < 1:
        raise LayoutError(f"`experts <= 4000` must hold on a GPU, but got {experts}")
    warps = max(1, min(warps, 32, -(-rows.count // 32)))
    first, second = block_ms[0], block_ms[1] if len(block_ms) > 1 else None
    around(rows.groups.device, "sort").launch(
        (1, 1),
        warps * 32,
        (
            rows.groups.data_ptr(),
            made["order"].data_ptr(),
            made["offsets"].data_ptr(),
            made[first].data_ptr(),
            address(made.get(second)),
            made["rows", first].data_ptr(),
            address(made.get(("rows", second))),
            first,
            second or 1,
            most[0],
            most[-1],
            rows.count,
            experts,
            rows.first_expert,
        ),
        (POINTER,) * 7 + (INT,) * 7,
    )


def _list_tiles(rows: RowsOperand, experts: int, block_m: int) -> None:
    made: dict[Any, torch.Tensor] = rows.made
    most = _room_for_tiles(rows, experts, block_m)
    indexed = rows.grouping == "indexed"
    around(rows.groups.device, "tiles").launch(
        (1, 1),
        min(1024, max(32, -(-most // 32) * 32)),
        (
            (made["offsets"] if indexed else rows.groups).data_ptr(),
            address(made.get("order")),
            made[block_m].data_ptr(),
            address(made.get(("rows", block_m))),
            block_m,
            most,
            experts,
            rows.count,
            rows.capacity,
            int(indexed),
            int(rows.grouping == "masked"),
        ),
        (POINTER,) * 4 + (INT,) * 7,
    )


def activate(
    projected: torch.Tensor, kind: str, gated: bool, alpha: float, limit: float
) -> torch.Tensor:
    """What moe/activations.py computes, in one launch; `projected` has contiguous rows."""
    rows, n = projected.shape
    width = n // 2 if gated else n
    out = projected.new_empty(rows, width)
    around(projected.device, "activate", _DTYPES[projected.dtype], kind).launch(
        (max(1, -(-rows * -(-width // 8) // _THREADS)), 1),
        _THREADS,
        (projected.data_ptr(), out.data_ptr(), rows, width, alpha, limit),
        (POINTER, POINTER, LONG, INT, _FLOAT, _FLOAT),
    )
    return out


def combine(parts: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """What moe/router.py's combine computes, in one launch; parts [m, top_k, n] are contiguous."""
    m, top_k, n = parts.shape
    out = parts.new_empty(m, n)
    around(parts.device, "combine", _DTYPES[parts.dtype]).launch(
        (max(1, -(-m * -(-n // 8) // _THREADS)), 1),
        _THREADS,
        (parts.data_ptr(), address(weights), out.data_ptr(), m, top_k, n),
        (POINTER, POINTER, POINTER, LONG, INT, INT),
    )
    return out


_SCORINGS = ("softmax", "sigmoid", "chosen_softmax", "chosen_sigmoid")
MOST_ROUTED = 1536
"""Experts that one launch chooses from: scores of four tokens lie in shared memory."""
MOST_GROUPS = 128


def route(
    logits: torch.Tensor,
    correction: torch.Tensor | None,
    top_k: int,
    scoring: str,
    normalized: bool,
    scale: float,
    groups: int,
    top_groups: int,
    best_of_group: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What moe/router.py's route computes, in one launch; logits [m, experts] are contiguous."""
    m, experts = logits.shape
    ids = logits.new_empty((m, top_k), dtype=torch.int32)
    weights = logits.new_empty((m, top_k), dtype=torch.float32)
    if m == 0:
        return ids, weights
    around(logits.device, "route", _DTYPES.get(logits.dtype, "")).launch(
        (-(-m // 4), 1),
        128,
        (
            logits.data_ptr(),
            address(correction),
            ids.data_ptr(),
            weights.data_ptr(),
            m,
            experts,
            top_k,
            int(logits.dtype == torch.float32),
            _SCORINGS.index(scoring),
            int(normalized),
            groups,
            top_groups,
            int(best_of_group),
            scale,
        ),
        (POINTER,) * 4 + (INT,) * 9 + (_FLOAT,),
    )
    return ids, weights


class Around:
    """One of the kernels around grouped products, on one GPU."""

    def __init__(self, index: int, name: str, activation_dtype: str, kind: str) -> None:
        device = serving_device_of(torch.device("cuda", index))
        source = experts_source(activation_dtype, kind)
        library = read_library(compiled_source(source, nvrtc_arch(source, device)).path)
        room = _ROOM_BYTES if name in ("sort", "tiles", "route") else 0
        self._function = DeviceFunction(library, f"humming_experts_{name}", index, room)
        self._dependent = (device.compute_capability or (0, 0)) >= (9, 0)

    def launch(
        self, grid: tuple[int, int], threads: int, values: tuple[Any, ...], types: tuple[Any, ...]
    ) -> None:
        """Enqueues it; it waits for the kernel before it by itself."""
        self._function.launch(grid, threads, values, types, dependent=self._dependent)


def around(
    device: torch.device, name: str, activation_dtype: str = "", kind: str = "silu"
) -> Around:
    """The kernel `name` around grouped products on this GPU, loaded at the first asking."""
    index = torch.cuda.current_device() if device.index is None else device.index
    if not activation_dtype:  # whatever this GPU has: no numbers are looked at
        able = torch.cuda.get_device_capability(index)
        activation_dtype = "bf16" if able >= (8, 0) else "fp16"
    key = (index, name, activation_dtype, kind)
    found = _AROUND.get(key)
    if found is None:
        if torch.cuda.is_current_stream_capturing():
            raise LaunchError(
                "the kernels around experts must be loaded before a CUDA graph is captured; call "
                "prepare(), or the layer once, before the capture"
            )
        found = _AROUND[key] = Around(*key)
    return found


_AROUND: dict[tuple[int, str, str, str], Around] = {}


def address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
