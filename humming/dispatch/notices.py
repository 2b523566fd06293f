"""What serving tells on its way: a line for each choice where HUMMING_LOG asks for it, and one
warning for each problem that nobody tuned. What serves is dispatcher.py; reports are report.py."""

from __future__ import annotations

import sys
import threading
import warnings

from humming.dispatch.dispatcher import Dispatch
from humming.errors import UntunedWarning
from humming.settings import logs
from humming.spec.device import Device
from humming.spec.problem import Problem
from humming.spec.routing import UNIFORM

TOPIC = "dispatch"
"""What HUMMING_LOG says to see lines."""

_LOCK = threading.Lock()
_WARNED: set[tuple[str, str]] = set()


def tell(dispatch: Dispatch, problem: Problem, device: Device, place: str) -> None:
    """Says once what serves `problem`, its m included, at `place` ("cuda:0", "cpu")."""
    if logs(TOPIC):
        sys.stderr.write(f"humming dispatch: {_named(problem)} on {place} -> {_told(dispatch)}\n")
    if dispatch.untuned:
        _warn(
            problem, device, place, "a heuristic" if dispatch.transfer is None else "a neighbour's"
        )


def _warn(problem: Problem, device: Device, place: str, whose: str) -> None:
    key = (problem.layer_id, device.name)
    with _LOCK:
        if key in _WARNED:
            return
        _WARNED.add(key)
    warnings.warn(
        f"{_named(problem)} was not tuned for {place}, so {whose} config serves; tune it with "
        f"`{command_for(problem, place)}`{_apart(problem)} or `humming-tune --from-misses`",
        UntunedWarning,
        stacklevel=2,
    )


def command_for(problem: Problem, place: str) -> str:
    """The command line that tunes `problem`, given its model's config."""
    invariant = " --batch-invariant" if problem.batch_invariant else ""
    uneven = problem.routing not in (None, UNIFORM)
    return (
        f"humming-tune --model <its config.json> --format {problem.format} --m {max(problem.m, 1)} "
        f"--device {place}{f' --routing {problem.routing}' if uneven else ''}{invariant}"
    )


def _apart(problem: Problem) -> str:
    """How the command finds layers that serving engines would have fused into one."""
    return " (`--unfused` for a model's q, k and v apart)" if problem.op == "dense" else ""


def _named(problem: Problem) -> str:
    text = f"{problem.format} n={problem.n} k={problem.k} m={problem.m} {problem.activation_dtype}"
    if problem.op != "dense":
        text = f"{problem.op} {text} experts={problem.experts} top_k={problem.top_k}"
        text += f" routing={problem.routing}"
    return text + (" batch-invariant" if problem.batch_invariant else "")


def _told(dispatch: Dispatch) -> str:
    text = f"{dispatch.config} ({dispatch.source}"
    if dispatch.tier is not None:
        text += f" {dispatch.tier}, record {str(dispatch.record)[:8]}"
    if dispatch.transfer is not None:
        text += f", {dispatch.transfer}"
    return f"{text}, m in [{dispatch.m_low}, {dispatch.m_high}))"
