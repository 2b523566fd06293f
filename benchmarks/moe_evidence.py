"""`python -m benchmarks.moe_evidence --part URL 1,16,64 --commit ID --out FILE`: what databases of
tuning know of the layers of experts that `benchmarks.moe` compares: a row a layer, format and m,
its configs by time. What heuristics are judged by; measures nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.moe_layers import LAYERS
from humming.errors import HummingError, UsageError
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from humming.spec.routing import UNIFORM
from tuner.planning.tasks import parse_m
from tuner.store.open import open_store

Key = tuple[str, str, int]


def part_of(url: str, m_values: Iterable[int]) -> dict[str, Any]:
    """A database's rows for these token counts, few first, and what made them. Of a config's times
    the least counts. Raises UsageError where there are none, or of several kinds of device."""
    wanted, found = set(m_values), dict[Key, dict[str, float]]()
    made: dict[Identity, None] = {}
    devices: set[str] = set()
    with open_store(url) as store:
        for identity in store.identities():
            for row in store.measurements(identity, outcome="ok"):
                key = _key(row.problem)
                if key is None or key[2] not in wanted or row.config is None or row.us is None:
                    continue
                times, text = found.setdefault(key, {}), f"{row.config.family}: {row.config}"
                times[text] = min(row.us, times.get(text, row.us))
                made[identity] = None
                devices.add(f"{row.device_uuid}, driver {identity.driver}")
    names = sorted({identity.device.name for identity in made})
    if not names:
        raise UsageError(f"{url} has no times of these layers and token counts; name another")
    if len(names) > 1:
        raise UsageError(
            f"{url} has times of {' and '.join(names)}; name a database of one of them"
        )
    rows = [
        {
            "format": format,
            "layer": layer,
            "m": m,
            "us": [[round(us, 2), text] for us, text in sorted((t, c) for c, t in times.items())],
        }
        for (format, layer, m), times in sorted(found.items(), key=lambda item: item[0][::-1])
    ]
    return {
        "device": names[0],
        "devices": sorted(devices),
        "compilers": sorted({f"{i.compiler} {i.compiler_version}" for i in made}),
        "policies": sorted({identity.policy for identity in made}),
        "sources": sorted({identity.source_hash for identity in made}),
        "rows": rows,
    }


def _key(problem: Problem) -> Key | None:
    for name, layer in LAYERS.items():
        shape = layer.experts, layer.top_k, layer.n, layer.k
        if shape == (problem.experts, problem.top_k, problem.n, problem.k):
            plain = problem.routing == UNIFORM and not (problem.bias or problem.act_order)
            return (problem.format, name, problem.m) if plain else None
    return None


def _lines(body: dict[str, Any]) -> str:
    """JSON with a line for each row."""
    head = {name: value for name, value in body.items() if name != "rows"}
    rows = ",\n".join(json.dumps(row) for row in body["rows"])
    return json.dumps(head)[:-1] + ', "rows": [\n' + rows + "\n]}\n"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.moe_evidence", description=__doc__)
    parser.add_argument(
        "--part",
        nargs=2,
        action="append",
        required=True,
        metavar=("URL", "M"),
        help="a database, such as sqlite:///tuning.db, and the token counts to take from it",
    )
    parser.add_argument("--commit", required=True, help="of the kernels that were measured")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    try:
        parts = [part_of(url, parse_m(m_values)) for url, m_values in asked.part]
    except HummingError as error:
        print(f"benchmarks.moe_evidence: {error}", file=sys.stderr)
        return 2
    rows = [{**row, "part": i} for i, part in enumerate(parts) for row in part.pop("rows")]
    body = {"benchmark": "moe_evidence", "git_commit": asked.commit, "parts": parts, "rows": rows}
    try:
        asked.out.write_text(_lines(body), "utf-8")
    except OSError as error:
        print(f"benchmarks.moe_evidence: {asked.out} cannot be written: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
