"""`python -m benchmarks.gemm`: our served layer on a GPU, by default int4g128, against torch's bf16
linear and humming-kernels.

The layers are tuned first, by our own tuner from an empty database, never by hand; then they are
called as a user calls them. The sides alternate in rounds on one GPU, each as a CUDA graph that
walks over cold weights. `--check FILE` measures rows of a result anew.

Where a format quantizes activations, x is quantized before all timed calls, ours too, and what the
served layer takes stands beside, as `served_us`; torch's row-wise fp8 product is a further side,
and DeepGEMM where it is installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gemm_codes import (
    BY_DEEP_GEMM,
    BY_TORCH,
    alone,
    deep_gemm,
    has_deep_gemm,
    multiplies_codes,
    scaled_mm,
)
from benchmarks.gemm_formats import compared
from benchmarks.gemm_models import (
    COMPILED_AHEAD,
    M_VALUES,
    SHAPES,
    TunedShapes,
    compile_ahead,
    tune_shapes,
)
from benchmarks.gemm_peer import PeerLostError, PeerProcess, Warming, rows_made
from benchmarks.gemm_sides import Sides, make_sides, rows_of_x
from benchmarks.provenance import provenance
from humming.dispatch.heuristics import heuristic
from humming.dispatch.tables import Interval, TableEntry, TunedTable
from humming.errors import HummingError
from humming.jit.detect import find_device
from humming.jit.identity import here
from humming.spec.config import config_from_dict, config_to_dict
from humming.spec.device import Device
from humming.spec.layouts import layout_for
from humming.spec.problem import Problem
from tuner.planning.budget import parse_duration
from tuner.promoting.verdict import paired_ratio

ROUNDS, REPLAYS = 5, 3
_FORMAT = "int4g128"
_WARMING_SECONDS = 45.0
"""How long the peer's compilers are waited for after ours; the rest is compiled when it is met."""

TOLERANCE = 0.1
"""A row is reproduced where our time, in torch's of the same rounds, differs by no more."""


@dataclass(frozen=True)
class Asked:
    """What is compared: weights of `formats` and `shapes` (n, k) at `m_values`.

    `seconds` is the tuning budget of all points; None: nothing is tuned, the heuristic serves.
    `database` is the URL that keeps their evidence, by default none does; `peer` the folder in
    which humming-kernels is installed, None without it. Compiled before all that are `ahead`
    proposals a point, and the peer's kernels where `warms_peer`.
    """

    shapes: Sequence[tuple[int, int]]
    m_values: tuple[int, ...]
    formats: Sequence[str]
    device: Device
    seconds: float | None
    peer: Path | None = None
    database: str | None = None
    ahead: int = COMPILED_AHEAD
    warms_peer: bool = True


def run(asked: Asked) -> Iterator[dict[str, Any]]:
    """The whole comparison as plain JSON, after each row anew."""
    with _started(asked.peer) as theirs:  # by the time it is asked, it has imported torch
        yield from _compared(asked, theirs)


@contextmanager
def _started(peer: Path | None) -> Iterator[PeerProcess | None]:
    theirs = None if peer is None else PeerProcess(peer)
    try:
        yield theirs
    finally:
        if theirs is not None:
            theirs.close()


def _compared(asked: Asked, theirs: PeerProcess | None) -> Iterator[dict[str, Any]]:
    started, clock = provenance(asked.device), time.monotonic()
    took: dict[str, float] = {}

    def done(stage: str) -> None:
        took[stage] = time.monotonic() - clock - sum(took.values())
        print(f"{stage}: {took[stage]:.1f} s", file=sys.stderr, flush=True)

    warming = None
    if asked.peer is not None and asked.warms_peer:
        warming = Warming(asked.peer, asked.shapes, asked.m_values, asked.formats)
    points = (asked.shapes, asked.m_values, asked.device, asked.formats)
    compile_ahead(*points, proposals=0 if asked.seconds is None else asked.ahead)
    done("compiling_ahead")
    if warming is not None:
        warming.finish(_WARMING_SECONDS)
    done("warming_the_peer")
    tuned = _tuned(asked)
    done("tuning")
    rows: list[dict[str, Any]] = []
    weights = [(format, n, k) for format in asked.formats for n, k in asked.shapes]
    for row in measured(weights, asked.m_values, tuned.table, asked.device, theirs):
        rows.append(row | _proof(tuned, row, asked.device))
        yield {
            "benchmark": "gemm",
            "format": ",".join(asked.formats),
            "rounds": ROUNDS,
            "replays": REPLAYS,
            "seconds": {**took, "all": time.monotonic() - clock},
            "provenance": started,
            "rows": rows,
        }


def _tuned(asked: Asked) -> TunedShapes:
    if asked.seconds is None:
        return TunedShapes(TunedTable("heuristic", ()), {})
    with tempfile.TemporaryDirectory(prefix="humming-benchmark-") as folder:
        return tune_shapes(
            asked.shapes,
            asked.m_values,
            asked.device,
            asked.seconds,
            Path(folder),
            asked.formats,
            asked.database or f"sqlite:///{folder}/tuning.db",
        )


def measured(
    weights: Sequence[tuple[str, int, int]],
    m_values: Sequence[int],
    table: TunedTable,
    device: Device,
    theirs: PeerProcess | None,
) -> Iterator[dict[str, Any]]:
    """Times, ratios and errors of every weight (format, n, k) and m."""
    for format, n, k in weights:
        sides = make_sides(format, n, k, device.cache_bytes, seed=n + k)
        limit = sides.read_limit_us(device)
        peer, point = theirs, {"format": format, "n": n, "k": k}
        if peer is not None and rows_made(n, format) != n:
            point["humming_kernels_n"] = rows_made(n, format)
        for m in m_values:
            x = rows_of_x(m, k, m)
            try:
                if peer is not None and m == m_values[0]:
                    peer.open(n, k, format)
                row = _row(sides, x, table, device, peer)
            except PeerLostError as error:  # it takes no such weight or m; the others still meet
                print(f"benchmarks.gemm: {format} {n}x{k} m={m}: {error}", file=sys.stderr)
                peer, point["no_humming_kernels"] = None, str(error)
                row = _row(sides, x, table, device, None)
            yield {**point, "m": m, **row, "read_limit_us": limit}
        del sides
        torch.cuda.empty_cache()


def _row(
    sides: Sides,
    x: torch.Tensor,
    table: TunedTable,
    device: Device,
    theirs: PeerProcess | None,
) -> dict[str, Any]:
    format = sides.quantized.format
    with torch.inference_mode():
        served = sides.ours(x, table)
        samples = {"us": served, "torch_bf16_us": sides.theirs(x)}
        if theirs is not None:
            theirs.prepare(len(x))
            samples["humming_kernels_us"] = theirs.sample
        if multiplies_codes(format, device):
            samples |= {"us": alone(sides, x, table, device), "served_us": served}
        if format in BY_TORCH:
            samples["scaled_mm_us"] = scaled_mm(sides, x, device)
        if format in BY_DEEP_GEMM and has_deep_gemm():
            samples["deep_gemm_us"] = deep_gemm(sides, x, device)
        ours, torchs = sides.errors(x)
        return {**_rounds(samples), "rel_error": ours, "torch_rel_error": torchs}


def _rounds(samples: Mapping[str, Callable[[int], float]]) -> dict[str, Any]:
    """Median times of the sides, which take turns, and how often ours, the first, fits into each
    other's."""
    taken: dict[str, list[float]] = {name: [] for name in samples}
    for _ in range(ROUNDS):
        for name, sample in samples.items():
            taken[name].append(sample(REPLAYS))
    found: dict[str, Any] = {name: statistics.median(times) for name, times in taken.items()}
    for name, times in list(taken.items())[1:]:
        ratio = paired_ratio(times, taken["us"])
        found[name.replace("_us", "_ratio")] = [ratio.ratio, ratio.low, ratio.high]
    return found


def _proof(tuned: TunedShapes, row: dict[str, Any], device: Device) -> dict[str, Any]:
    """What the tuner wrote down about a row's winner; where it came to none the heuristic serves,
    and there is no record."""
    format, n, k, m = row["format"], row["n"], row["k"], row["m"]
    winner = tuned.winners.get((format, n, k, m))
    problem = Problem(format, n, k, m, layout=layout_for(device, format))
    config = winner.config if winner else heuristic(problem, device)
    return {
        "family": config.family,
        "config": config_to_dict(config),
        "config_text": str(config),
        "gpu_uuid": device.uuid,
        "record_id": winner.id if winner else None,
    }


def check(report: dict[str, Any], wanted: set[str], device: Device, peer: Path | None) -> int:
    """Measures the rows named `wanted` ("8192x8192:256", of other formats than int4g128
    "mxfp4:8192x8192:64"; none = all) with the configs of `report`.

    Prints each beside what the file says; returns how many do not reproduce.
    """
    rows = [row for row in report["rows"] if not wanted or _name(row) in wanted]
    unknown = wanted - {_name(row) for row in rows}
    if unknown:
        raise HummingError(f"the file has no row {', '.join(sorted(unknown))}; see its n, k and m")
    table = _table_of(rows, device)
    with _started(peer) as theirs:
        return sum(not _reproduced(row, table, device, theirs) for row in rows)


def _reproduced(
    row: dict[str, Any], table: TunedTable, device: Device, theirs: PeerProcess | None
) -> bool:
    (now,) = measured([_weight(row)], [row["m"]], table, device, theirs)
    drift = (now["us"] / now["torch_bf16_us"]) / (row["us"] / row["torch_bf16_us"]) - 1
    same = bool(abs(drift) <= TOLERANCE and now["rel_error"] <= 1.1 * now["torch_rel_error"])
    print(
        f"{_name(row)} {row['config_text']}: {now['us']:.2f} us, file {row['us']:.2f}; "
        f"in torch's time {drift:+.1%}{'' if same else '  NOT REPRODUCED'}",
        flush=True,
    )
    return same


def _name(row: dict[str, Any]) -> str:
    name = f"{row['n']}x{row['k']}:{row['m']}"
    return name if row["format"] == _FORMAT else f"{row['format']}:{name}"


def _table_of(rows: Sequence[dict[str, Any]], device: Device) -> TunedTable:
    """A table by which each row's config serves its own m alone."""
    entries = []
    for weight in sorted({_weight(row) for row in rows}):
        problem = Problem(*weight, 0, layout=layout_for(device, weight[0]))
        of_shape = sorted((r for r in rows if _weight(r) == weight), key=lambda r: r["m"])
        intervals = tuple(
            Interval(
                r["m"],
                r["m"] + 1,
                r["m"],
                config_from_dict(r["config"]),
                r["us"],
                r["us"],
                r["record_id"] or "",
            )
            for r in of_shape
        )
        entries.append(TableEntry(here(device), problem, intervals))
    return TunedTable("check", tuple(entries))


def _weight(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["format"], row["n"], row["k"]


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gemm", description=__doc__)
    parser.add_argument("--shapes", default=",".join(f"{n}x{k}" for n, k in SHAPES))
    parser.add_argument("--m", default=",".join(map(str, M_VALUES)), help="token counts")
    parser.add_argument("--format", default=_FORMAT, help="weight formats, by commas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--db", help="database that keeps the evidence; by default none does")
    parser.add_argument("--budget", default="10m", help="tuning time of all points together")
    parser.add_argument("--heuristic", action="store_true", help="tune nothing")
    parser.add_argument("--peer", type=Path, help="folder in which humming-kernels is installed")
    parser.add_argument(
        "--ahead", type=int, default=COMPILED_AHEAD, help="proposals a point compiled before all"
    )
    parser.add_argument(
        "--peer-cached", action="store_true", help="the peer has compiled all that it needs"
    )
    parser.add_argument("--out", type=Path, help="file for the JSON; else it is printed")
    parser.add_argument("--check", type=Path, help="a result whose rows are measured anew")
    parser.add_argument("--rows", default="", help="with --check: rows such as 8192x8192:256")
    found = parser.parse_args(arguments)
    try:
        found.shapes = [_shape(text) for text in found.shapes.split(",")]
        found.m_values = tuple(int(text) for text in found.m.split(","))
        found.formats = found.format.split(",")
        for format in found.formats:
            compared(format)
        found.seconds = parse_duration(found.budget)
    except (ValueError, HummingError) as error:
        parser.error(str(error))
    if min(found.m_values) < 1:
        parser.error(f"`m >= 1` must hold, but got --m {found.m}")
    found.rows = set(filter(None, found.rows.split(",")))
    found.peer = found.peer.resolve() if found.peer else None
    return found


def _shape(text: str) -> tuple[int, int]:
    n, _, k = text.partition("x")
    if int(n) < 1 or int(k) < 1:
        raise ValueError(f"`n, k >= 1` must hold, but got {text}")
    return int(n), int(k)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; exit code 0, 1 where a row does not reproduce, 2 on unusable input."""
    found = parse_arguments(arguments)
    try:
        device = find_device(found.device)
        if device.kind != "cuda":
            raise HummingError("benchmarks.gemm needs a GPU; CPUs are benchmarks.cpu")
        if found.check is not None:
            report = json.loads(found.check.read_text("utf-8"))
            return int(check(report, found.rows, device, found.peer) > 0)
        text = ""
        asked = Asked(
            found.shapes,
            found.m_values,
            found.formats,
            device,
            None if found.heuristic else found.seconds,
            found.peer,
            found.db,
            found.ahead,
            not found.peer_cached,
        )
        for report in run(asked):
            text = json.dumps(report, indent=1) + "\n"
            if found.out is not None:
                found.out.parent.mkdir(parents=True, exist_ok=True)
                found.out.write_text(text, "utf-8")
    except HummingError as error:
        print(f"benchmarks.gemm: {error}", file=sys.stderr)
        return max(error.exit_code, 2)
    if found.out is None:
        print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
