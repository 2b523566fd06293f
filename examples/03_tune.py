"""Tune a tiny model from Python, then serve a layer with the table that the tuner wrote."""

import json
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console

import humming
from humming.jit.identity import serving_device
from humming.settings import tables_dir
from tuner.pipeline import Job, tune
from tuner.planning.budget import Budget
from tuner.progress import Watch
from tuner.store.open import open_store

SECONDS = 30.0
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


def main() -> None:
    """Tunes for m = 1 into a database of its own; what is proved stays in `tables` beside it."""
    with tempfile.TemporaryDirectory(prefix="humming-example-") as folder:
        model = Path(folder) / "config.json"
        model.write_text(json.dumps(CONFIG))
        database = f"sqlite:///{folder}/tuning.db"

        job = Job(model, serving_device(), m_values=(1,), format="int4g128")
        watch = Watch(Console(file=sys.stderr), quiet=True)
        with open_store(database) as store:
            tuned = tune(job, store, tables_dir(database), Budget(SECONDS), watch)
            for winner in store.winners(tuned.identity):
                print(f"n={winner.problem.n} k={winner.problem.k} m=1: {winner.config}")
        print(f"trials: {tuned.measured}, problems: {len(tuned.tasks)}")

        linear = torch.nn.Linear(256, 512, bias=False, dtype=torch.bfloat16)
        layer = humming.HummingLinear.from_linear(linear, "int4g128")
        layer.prepare(table=database)
        print(layer)
        with torch.inference_mode():
            print(f"served: {list(layer(torch.randn(1, 256, dtype=torch.bfloat16)).shape)}")


if __name__ == "__main__":
    main()
