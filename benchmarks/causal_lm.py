"""`python -m benchmarks.causal_lm`: a whole causal LM at Qwen3-8B's shape with random weights on a
GPU: torch's bf16 layers, ours in int4g128, and those of humming-kernels.

Each side is a process (causal_lm_side.py); they take turns in rounds. Decoding runs in CUDA graphs,
a prompt is processed eagerly, as transformers runs it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.causal_lm_side import FORMAT, QWEN3_8B
from benchmarks.gemm_peer import Warming
from benchmarks.provenance import provenance
from humming.errors import HummingError
from humming.jit.detect import find_device
from tuner.promoting.verdict import paired_ratio

_SIDE = Path(__file__).with_name("causal_lm_side.py")
_ROOT = _SIDE.parents[1]
_STARTED = time.monotonic()
TOKENS, PROMPT, TEACHER = 64, 2048, 128
HOST_POINTS = ((6144, 4096, 1), (6144, 4096, 64))
_SHAPES = ((4096, 4096), (1024, 4096), (12288, 4096), (4096, 12288), (6144, 4096))
_WARMING_SECONDS = 40.0


class SideProcess:
    """One side. Raises HummingError where it ends unasked."""

    def __init__(self, kind: str, sizes: dict[str, Any], folder: Path | None) -> None:
        path = os.environ.get("PYTHONPATH", "")
        ours = folder is None
        self.kind = kind
        self._process = subprocess.Popen(
            [sys.executable, str(_SIDE), kind, json.dumps(sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT if ours else folder,  # where humming-kernels is, ours must not be found first
            env={**os.environ, "PYTHONPATH": f"{_ROOT}:{path}" if ours else str(folder)},
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """The next answer; the first one comes unasked, when the model is there."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise HummingError(f"the process of {self.kind} has ended; what it said stands above")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, method: str, *arguments: object) -> dict[str, Any]:
        """What a method of Side answers."""
        self.send(method, *arguments)
        return self.answer()

    def send(self, method: str, *arguments: object) -> None:
        """Asks without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({method: arguments}) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def run(
    sides: Sequence[SideProcess],
    rounds: int,
    warming: Warming | None = None,
    save: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """All figures: samples by side, and the ratios of the others to ours. `save` is given what is
    there after each of them; while the peer's kernels compile, the others meet alone."""
    report: dict[str, Any] = {"made": {side.kind: side.answer() for side in sides}}
    _say(f"made: {report['made']}")
    ours = next(side for side in sides if side.kind == "humming")
    alone = [side for side in sides if side.kind != "humming-kernels"]
    _warm(alone)
    report["graph_us"] = [{"point": p, **ours.ask("graphs", *p, 40)} for p in HOST_POINTS]
    _say(f"in CUDA graphs: {report['graph_us']}")
    if warming is not None:
        save(report | {"without_the_peer": _measured(alone, 3)})
        warming.finish(_WARMING_SECONDS)
        _say("the peer's kernels are compiled")
        _warm([side for side in sides if side.kind == "humming-kernels"])
    report |= _measured(sides, rounds)
    save(report)
    report["logit_error"] = _logit_errors({side.kind: side for side in sides})
    save(report)
    return report


def _measured(sides: Sequence[SideProcess], rounds: int) -> dict[str, Any]:
    """Decoding, a prompt, and host times of all `sides` in turn."""
    decode = _rounds(sides, rounds, lambda side, _: side.ask("decode", TOKENS)["us"], (TOKENS,))
    prompt = _rounds(sides, rounds, lambda side, m: side.ask("prefill", m)["ms"], (PROMPT,))
    host = _rounds(sides, 3, lambda side, p: side.ask("host", *p, 200)["us"], HOST_POINTS)
    return {"decode_us": decode[0], "prefill_ms": prompt[0], "host_us": host}


def _warm(sides: Sequence[SideProcess]) -> None:
    """Has all sides compile and capture at once what they will need."""
    requests = [("decode", (TOKENS,)), ("prefill", (PROMPT,))]
    requests += [("host", (*point, 5)) for point in HOST_POINTS]
    for side in sides:
        for method, arguments in requests:
            side.send(method, *arguments)
    for side in sides:
        for method, _ in requests:
            side.answer()
            _say(f"{side.kind} is ready: {method}")


def _rounds(sides: Sequence[SideProcess], rounds: int, sample: Any, points: Any) -> list[Any]:
    """Of each point: samples by side, and each side's ratio to ours with its interval."""
    found = []
    for point in points:
        for side in sides:
            sample(side, point)
        taken: dict[str, list[float]] = {side.kind: [] for side in sides}
        for number in range(rounds):
            for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                taken[side.kind].append(sample(side, point))
        row: dict[str, Any] = {"point": point, "samples": taken}
        for kind, values in taken.items():
            row[kind] = statistics.median(values)
            if kind != "humming":
                found_ratio = paired_ratio(values, taken["humming"])
                row[f"{kind} / humming"] = dataclasses.astuple(found_ratio)
        _say(json.dumps({key: value for key, value in row.items() if key != "samples"}))
        found.append(row)
    return found


def _logit_errors(sides: dict[str, SideProcess]) -> dict[str, float]:
    """Relative error of the logits of a given text, of torch's layers and of ours, against fp32 on
    the dequantized weights."""
    with tempfile.TemporaryDirectory(prefix="humming-logits-") as folder:
        paths = {kind: str(Path(folder) / kind) for kind in ("torch", "humming", "exact")}
        for kind in ("torch", "humming"):
            sides[kind].ask("logits", TEACHER, paths[kind])
        sides["torch"].close()
        sides["humming"].ask("reference", TEACHER, paths["exact"])
        exact = torch.load(paths["exact"]).double()
        errors = {
            kind: float((torch.load(paths[kind]).double() - exact).norm() / exact.norm())
            for kind in ("torch", "humming")
        }
    _say(f"relative error of teacher-forced logits: {errors}")
    return errors


def _say(text: str) -> None:
    print(f"{time.monotonic() - _STARTED:.0f} s: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the comparison and writes it to --out, or prints it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.causal_lm", description=__doc__)
    parser.add_argument("--peer", type=Path, help="folder of humming-kernels; else without it")
    parser.add_argument("--table", type=Path, help="a tuned table; else the default one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--layers", type=int, help="layers of the model; else those of Qwen3-8B")
    parser.add_argument("--out", type=Path, help="file for the JSON; else it is printed")
    found = parser.parse_args(arguments)
    device = find_device()
    sizes = {} if found.layers is None else {"num_hidden_layers": found.layers}
    own = sizes if found.table is None else {**sizes, "table": str(found.table)}
    warming = None
    if found.peer is not None:
        warming = Warming(found.peer.resolve(), _SHAPES, (1, 64, PROMPT), (FORMAT,))
    sides = [SideProcess("torch", sizes, None), SideProcess("humming", own, None)]
    if found.peer is not None:
        sides.append(SideProcess("humming-kernels", sizes, found.peer.resolve()))
    facts = {
        "benchmark": "causal_lm",
        "format": FORMAT,
        "model": {**QWEN3_8B, **sizes},
        "tokens": TOKENS,
        "prompt": PROMPT,
        "provenance": provenance(device),
    }

    def save(report: dict[str, Any]) -> None:
        if found.out is not None:
            found.out.write_text(json.dumps(facts | report, indent=1) + "\n", "utf-8")

    try:
        report = run(sides, found.rounds, warming, save)
    finally:
        for side in sides:
            side.close()
    if found.out is None:
        sys.stdout.write(json.dumps(facts | report, indent=1) + "\n")


if __name__ == "__main__":
    main()
