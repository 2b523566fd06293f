"""Trials in the T4 results format of the auto-tuning community, which Kernel Tuner and its tools
write and read. Bundles that move evidence without loss are tuner/store/moving/.

A T4 file holds the results of one search: so one file for each identity and problem, and beside
them `metadata.json` with what was tuned where. Times are in milliseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from humming.dispatch.pointers import replace_file
from humming.errors import StoreError
from humming.spec.canonical import plain
from humming.spec.config import config_to_dict
from humming.spec.identity import Identity
from humming.version import __version__
from tuner.store.records import Measurement, Outcome
from tuner.store.store import Store

SCHEMA_VERSION = "1.0.0"
_VALIDITY: dict[Outcome, str] = {
    "ok": "correct",
    "illegal": "constraints",
    "compile_error": "compile",
    "launch_error": "runtime",
    "crashed": "runtime",
    "wrong_result": "correctness",
    "timeout": "timeout",
}
_FAILED: dict[str, str] = {
    "compile": "CompilationFailedConfig",
    "constraints": "InvalidConfig",
}
"""What the tools expect in place of a time where there is none; else "RuntimeFailedConfig"."""


def export(store: Store, folder: Path) -> dict[str, int]:
    """Writes the trials of every identity into `folder` (made where missing); how many files and
    results. Raises StoreError where it cannot be written, or nothing was tried."""
    files = results = 0
    metadata: dict[str, Any] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for identity in store.identities():
            for name, trials in _by_problem(store, identity).items():
                made = to_t4(trials)
                replace_file(folder / f"{name}.json", json.dumps(made, indent=1).encode())
                metadata[name] = {"identity": plain(identity), "problem": plain(trials[0].problem)}
                files, results = files + 1, results + len(trials)
        text = json.dumps(_metadata(metadata), indent=1)
        replace_file(folder / "metadata.json", text.encode())
    except OSError as error:
        raise StoreError(
            f"--out must be a folder that can be written, but got '{folder}' ({error.strerror})"
        ) from None
    return {"files": files, "results": results}


def _by_problem(store: Store, identity: Identity) -> dict[str, list[Measurement]]:
    """File name -> trials of one problem on one identity, torch's left out."""
    found: dict[str, list[Measurement]] = {}
    own = [one for one in store.measurements(identity) if one.identity_id == identity.id]
    for trial in own:
        problem = trial.problem
        if trial.config is not None:
            shape = f"{problem.op}_{problem.format}_n{problem.n}_k{problem.k}_m{problem.m}"
            name = f"{shape}_{problem.id[:8]}_{identity.id[:8]}"
            found.setdefault(name, []).append(trial)
    return found


def to_t4(trials: list[Measurement]) -> dict[str, Any]:
    """The results of one search as T4 has them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {"timeunit": "milliseconds"},
        "results": [_result(trial) for trial in trials],
    }


def _result(trial: Measurement) -> dict[str, Any]:
    validity = _VALIDITY[trial.outcome]
    compile_ms = (trial.compile_s or 0.0) * 1e3
    took = (trial.finished_at - trial.started_at).total_seconds() * 1e3
    time = _FAILED.get(validity, "RuntimeFailedConfig") if trial.us is None else trial.us / 1e3
    assert trial.config is not None
    return {
        "timestamp": trial.finished_at.isoformat(),
        "configuration": config_to_dict(trial.config),
        "times": {
            # the schema's name for it, and the one that the tools read
            "compilation_time": compile_ms,
            "compilation": compile_ms,
            "benchmark": sum(trial.samples) / 1e3,
            "framework": max(0.0, took - compile_ms - sum(trial.samples) / 1e3),
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": [us / 1e3 for us in trial.samples],
        },
        "invalidity": validity,
        "correctness": 0 if trial.outcome == "wrong_result" else 1,
        "measurements": [{"name": "time", "value": time, "unit": "ms"}],
        "objectives": ["time"],
    }


def _metadata(searches: dict[str, Any]) -> dict[str, Any]:
    """T4's metadata file: what it does not name stands under `searches`, by file."""
    devices = {one["identity"]["device"]["name"] for one in searches.values()}
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "hardware": {"hardware_description": sorted(devices)},
            "environment": {"requirements": [f"humming-tune=={__version__}"]},
            "searches": searches,
        },
    }
