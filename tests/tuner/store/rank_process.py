"""What the test of two ranks runs: a rank that serves a layer again and again, and a writer that
tunes meanwhile. No tests here."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import replace

import torch

import humming
from humming.dispatch.heuristics import heuristic
from humming.jit.identity import here, serving_device
from humming.settings import database_url, tables_dir
from humming.spec.config import CpuConfig
from humming.spec.problem import Problem
from tuner.store.open import open_store
from tuner.store.store import Store
from tuner.store.tables import publish

LAYER = Problem("int4g128", n=64, k=256, m=1, activation_dtype="fp32", output_dtype="fp32")
TOKENS = (1, 3, 16)


def configs() -> list[CpuConfig]:
    """Two legal configs of the layer, of which the second sums in another order."""
    first = heuristic(LAYER, serving_device())
    assert isinstance(first, CpuConfig)
    other = {"unroll": 2} if first.code_path == "generic" else {"code_path": "generic"}
    return [first, replace(first, **other)]  # type: ignore[arg-type]


def promote(store: Store, which: int) -> str:
    """Lets one of both serve the layer, and publishes; the generation's id."""
    store.promote(
        here(serving_device()),
        LAYER,
        configs()[which % 2],
        us=1.0 + which,
        heuristic_us=2.0,
        evidence={"serves": [0, 100]},
    )
    table = publish(store, tables_dir())
    assert table is not None
    return table.id


def serve() -> tuple[str, str]:
    """Binds the layer anew and calls it: a hash of its outputs, and what it was bound to."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(LAYER.k, LAYER.n, bias=False)
    xs = [torch.randn(m, LAYER.k) for m in TOKENS]
    layer = humming.HummingLinear.from_linear(linear, "int4g128")
    layer.prepare()
    with torch.inference_mode():
        bits = b"".join(layer(x).numpy().tobytes() for x in xs)
    return hashlib.sha256(bits).hexdigest(), repr(layer).partition("configs=")[2]


def rank(seconds: float) -> dict[str, object]:
    """Serves until `seconds` after the first call are over: all that it saw."""
    seen, calls = {serve()}, 1
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen.add(serve())
        calls += 1
    return {"seen": sorted(seen), "calls": calls}


def write(seconds: float) -> dict[str, object]:
    """Promotes one config and then the other until `seconds` are over."""
    ids = []
    end = time.monotonic() + seconds
    with open_store(database_url()) as store:
        while len(ids) < 2 or time.monotonic() < end:
            ids.append(promote(store, len(ids)))
    return {"generations": len(set(ids))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"rank": rank, "write": write}[sys.argv[1]](float(sys.argv[2]))))
