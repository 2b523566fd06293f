"""The command `warm`: compiles, ahead of serving, every kernel that a model's layers will ask for
on a device, by its tuned table or the heuristic. Runs and measures nothing."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from humming.dispatch.dispatcher import resolve
from humming.dispatch.shipped import shipped_table
from humming.dispatch.sources import load_table
from humming.errors import CompileError, LegalityError, UsageError
from humming.jit.cache import compiled
from humming.jit.identity import here
from humming.settings import cache_dir
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.naming import counted
from humming.spec.problem import Problem
from tuner.planning.tasks import problem_of
from tuner.searching.compile_pool import cores
from tuner.workload import read_workload


@dataclass(frozen=True)
class Warmed:
    """What the cache holds now: kernels by the layers that ask for them, and what failed."""

    device: Device
    compiled: int
    cached: int
    failed: tuple[str, ...]
    not_servable: tuple[str, ...]


def warm(
    model: Path,
    device: Device,
    tp: int = 1,
    format: str | None = None,
    db: str | None = None,
    unfused: bool = False,
) -> Warmed:
    """Fills the kernel cache for `model`'s quantized layers, at every m, on `device`.

    Raises UsageError where the cache cannot be written: what is compiled would be lost.
    """
    _check_cache()
    workload = read_workload(model, tp, format, unfused)
    asked: dict[tuple[KernelConfig, str, bool, bool], Problem] = {}
    unservable: list[str] = []
    identity, table = here(device), load_table(db)
    for group in workload.problems:
        problem = problem_of(group, workload, device)
        try:
            dispatches = resolve(problem, identity, table, shipped=shipped_table(device))
        except LegalityError as error:
            unservable.append(str(error))
            continue
        for dispatch in dispatches:
            key = (dispatch.config, problem.format, problem.act_order, problem.k % 8 != 0)
            asked[key] = problem.at(max(dispatch.m_low, 1))
    results = _compile([(key[0], problem) for key, problem in asked.items()], device)
    failed = tuple(said for said in results if isinstance(said, str))
    fresh = sum(1 for said in results if said is True)
    known = len(results) - fresh - len(failed)
    return Warmed(device, fresh, known, failed, tuple(dict.fromkeys(unservable)))


def _check_cache() -> None:
    folder = cache_dir() / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"warm needs a kernel cache that can be written, but {folder} cannot "
            f"({error.strerror}); set HUMMING_CACHE to another folder"
        ) from error


def _compile(pairs: list[tuple[KernelConfig, Problem]], device: Device) -> list[bool | str]:
    """Of each: whether it was compiled now, or what the compiler said."""

    def one(pair: tuple[KernelConfig, Problem]) -> bool | str:
        try:
            return compiled(*pair, device).compile_s > 0
        except CompileError as error:
            return f"{pair[0]} of {pair[1].format}: {' '.join(str(error).split())[:300]}"

    with ThreadPoolExecutor(cores(), thread_name_prefix="humming-warm") as pool:
        return list(pool.map(one, pairs))


def to_json(warmed: Warmed) -> dict[str, Any]:
    """The answer for machines."""
    return {
        "device": warmed.device.name,
        "cache": str(cache_dir() / "kernels"),
        "compiled": warmed.compiled,
        "cached": warmed.cached,
        "failed": list(warmed.failed),
        "not_servable": list(warmed.not_servable),
    }


def print_warmed(warmed: Warmed, console: Console) -> None:
    """The answer for a person."""
    console.print(
        f"{warmed.device.name}: {counted(warmed.compiled, 'kernel')} compiled, "
        f"{warmed.cached} {'was' if warmed.cached == 1 else 'were'} there, in "
        f"{cache_dir() / 'kernels'}",
        highlight=False,
    )
    for said in warmed.failed:
        console.print(f"failed: {said}", highlight=False)
    for said in warmed.not_servable:
        console.print(f"not servable here: {said}", highlight=False)
