"""From a workload to the problems that can be tuned on a device, and those that cannot, with the
rule. Times and stores nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from humming.dispatch.intervals import serve_intervals
from humming.errors import LegalityError, UsageError
from humming.spec.device import Device
from humming.spec.layouts import layout_for
from humming.spec.problem import M_END, Problem
from humming.spec.routing import check_routing
from search_spaces.model import SearchSpace
from tuner.searching.candidates import Candidates, legal_candidates
from tuner.workload import LayerGroup, Workload


@dataclass(frozen=True)
class Task:
    """One problem to settle: the layers that ask for it, its candidates, and the m that its winner
    will serve."""

    group: LayerGroup
    problem: Problem
    candidates: Candidates
    m_low: int
    m_high: int


@dataclass(frozen=True)
class Skipped:
    """Layers that no family can run on this device, with the rule's sentence."""

    group: LayerGroup
    reason: str


MOST_CHECKED_M = 8192
"""No interval reaches further beyond its anchor: verifying larger m would take longer than
tuning."""

BYTES_PER_ELEMENT = 32
"""Memory that verifying takes for each element of x and out: poisoned outputs, canaries,
float64."""


def parse_m(text: str) -> tuple[int, ...]:
    """Sorted distinct token counts of "1,16,256". Raises UsageError unless each is in 1 .. 2**31 -
    1."""
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        values = [0]
    if not values or values[0] < 1 or values[-1] >= M_END:
        raise UsageError(
            "--m must be whole numbers with `1 <= m < 2**31`, separated by commas, but got "
            f"'{text}'; write --m 1,16,256"
        )
    return tuple(values)


_WRONG: dict[type[Exception], str] = {
    FileNotFoundError: "there is no such file",
    json.JSONDecodeError: "it is no JSON",
    KeyError: "it has no `routing`",
    TypeError: "it has no `routing`",
}


def parse_routing(text: str) -> str:
    """The routing of a name, or of a file of `humming.record_routing`. Raises UsageError."""
    if text.endswith(".json"):
        try:
            text = str(json.loads(Path(text).read_text())["routing"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            why = "it is a folder" if _is_folder(text) else _WRONG.get(type(error), "not readable")
            raise _no_record(text, why) from error
    try:
        check_routing(text)
    except LegalityError:
        if _is_folder(text):
            raise _no_record(text, "it is a folder") from None
        raise
    return text


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):  # too long, or no name at all
        return False


def _no_record(text: str, why: str) -> UsageError:
    return UsageError(
        f"--routing must name a file of humming.record_routing, but '{text}' is none ({why}); "
        "record one, or write uniform"
    )


def make_tasks(
    workload: Workload,
    m_values: tuple[int, ...],
    device: Device,
    spaces: tuple[SearchSpace, ...],
) -> tuple[list[Task], list[Skipped]]:
    """A task for each layer group and m, small m first as decode counts most; and the groups that
    cannot run here. Batch-invariant layers add up in one order, which the first m decides."""
    if workload.batch_invariant:
        m_values = m_values[:1]
    spans = {
        m: (low, min(high, max(m, MOST_CHECKED_M) + 1))
        for low, high, m, _ in serve_intervals((m, None) for m in m_values)
    }
    memory = available_bytes() if device.kind == "cpu" else None
    tasks: list[Task] = []
    skipped: list[Skipped] = []
    for m in m_values:
        for group in workload.problems:
            problem = problem_of(group, workload, device, m)
            try:
                candidates = legal_candidates(problem, device, spaces)
                _check_memory(problem, memory)
            except LegalityError as error:
                if not any(skip.reason == str(error) for skip in skipped if skip.group == group):
                    skipped.append(Skipped(group, str(error)))
                continue
            tasks.append(Task(group, problem, candidates, *spans[m]))
    return tasks, skipped


def problem_of(group: LayerGroup, workload: Workload, device: Device, m: int = 0) -> Problem:
    """What a layer group asks for on `device`."""
    return Problem(
        format=group.format,
        n=group.n,
        k=group.k,
        m=m,
        activation_dtype=workload.dtype,
        output_dtype=workload.dtype,
        layout=layout_for(device, group.format, group.op),
        op=group.op,
        experts=group.experts,
        top_k=group.top_k,
        routing=workload.routing if group.op == "moe" else None,
        act_order=group.act_order,
        batch_invariant=workload.batch_invariant and group.op == "dense",
    )


def available_bytes() -> int | None:
    """Memory that the kernel says may be taken; None where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _check_memory(problem: Problem, available: int | None) -> None:
    """Raises LegalityError where tuning `problem` would take more than three quarters of the
    memory."""
    needed = problem.pairs * (problem.n + problem.k) * BYTES_PER_ELEMENT
    if available is not None and needed > 0.75 * available:
        raise LegalityError(
            f"tuning n={problem.n}, k={problem.k} at m={problem.m} needs about "
            f"{needed / 2**30:.0f} GiB of memory, but {available / 2**30:.0f} GiB are free; "
            "name smaller --m"
        )
