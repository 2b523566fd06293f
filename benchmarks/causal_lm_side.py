"""One side of benchmarks/causal_lm.py as a process of its own: a causal LM whose linear layers are
torch's, ours or those of humming-kernels, which imports as `humming` too. It reads requests as JSON
lines and answers each with one. Which sides meet, and how often, is causal_lm.py.

    python benchmarks/causal_lm_side.py torch|humming|humming-kernels '{"num_hidden_layers": 2}'
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

QWEN3_8B: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
FORMAT = "int4g128"
CACHED = 256
"""Tokens that the cache of a decoding model has room for."""


class Side:
    """A model with random weights, the same on all sides, and its decoding step as a CUDA graph."""

    def __init__(self, kind: str, sizes: dict[str, Any], table: str | None) -> None:
        self.kind, self.device = kind, torch.device("cuda" if torch.cuda.is_available() else "cpu")
        transformers = importlib.import_module("transformers")
        config = transformers.Qwen3Config(**{**QWEN3_8B, **sizes})
        torch.manual_seed(0)
        with torch.device(self.device):
            self.model = transformers.AutoModelForCausalLM.from_config(
                config, dtype=torch.bfloat16, attn_implementation="sdpa"
            ).eval()
        _with_fused_norms(self.model)
        started = time.perf_counter()
        _REPLACE[kind](self.model, table)
        self._wait()
        self.made_s = time.perf_counter() - started
        self.cache = transformers.StaticCache(config=config, max_cache_len=CACHED)
        self.token = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.position = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.places = torch.arange(CACHED, device=self.device)
        self.graph: Any = None

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def memory(self) -> dict[str, Any]:
        """Bytes that are allocated, and seconds that replacing the layers took."""
        held = torch.cuda.memory_allocated() if self.device.type == "cuda" else 0
        return {"bytes": held, "made_s": self.made_s}

    def _step(self) -> None:
        """One token, greedily: the next one replaces it."""
        mask = (self.places <= self.position)[:, None]
        out = self.model(
            input_ids=self.token,
            position_ids=self.position,
            attention_mask={"full_attention": mask},
            past_key_values=self.cache,
            use_cache=True,
        )
        self.token.copy_(out.logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def _rewind(self, context: int) -> None:
        self.position.fill_(context)
        for layer in self.cache.layers:
            length = getattr(layer, "cumulative_length", None)
            if isinstance(length, torch.Tensor):
                length.fill_(context)

    def decode(self, tokens: int, context: int = 64) -> dict[str, Any]:
        """Microseconds for each of `tokens` tokens after `context` others, in CUDA graphs."""
        if self.graph is None and self.device.type == "cuda":
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._step()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()
        once = self._step if self.graph is None else self.graph.replay
        self._rewind(context)
        once()
        self._rewind(context)
        self._wait()
        started = time.perf_counter()
        for _ in range(tokens):
            once()
        self._wait()
        return {"us": (time.perf_counter() - started) / tokens * 1e6, "token": int(self.token)}

    def prefill(self, m: int) -> dict[str, Any]:
        """Milliseconds from a prompt of `m` tokens to its first new one on the host, eagerly."""
        ids = self._prompt(m)
        self._wait()
        started = time.perf_counter()
        out = self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
        int(out.logits[0, -1].argmax())
        return {"ms": (time.perf_counter() - started) * 1e3}

    def logits(self, m: int, path: str) -> dict[str, Any]:
        """Writes the logits of a prompt of `m` tokens to `path`."""
        torch.save(self.model(input_ids=self._prompt(m), use_cache=False).logits.float(), path)
        return {}

    def reference(self, m: int, path: str) -> dict[str, Any]:
        """The same in fp32 on the dequantized weights; the side is of no use afterwards."""
        self.graph = None
        for owner, name, layer in _layers(self.model, "HummingLinear"):
            weight = layer.quantized().dequantize(torch.float32)
            plain = nn.Linear(1, 1, bias=False)
            plain.weight = nn.Parameter(weight, requires_grad=False)
            setattr(owner, name, plain)
        self.model.float()
        return self.logits(m, path)

    def host(self, n: int, k: int, m: int, calls: int) -> dict[str, Any]:
        """Least microseconds of host time of an eager call of one layer [n, k] without a bias."""
        linear = nn.Linear(k, n, bias=False, device=self.device, dtype=torch.bfloat16)
        holder = nn.ModuleDict({"layer": linear})
        _REPLACE[self.kind](holder, None)
        layer, x = holder["layer"], torch.randn(m, k, device=self.device, dtype=torch.bfloat16)
        best = float("inf")
        for _ in range(5):
            for _ in range(5):
                layer(x)
            self._wait()
            started = time.perf_counter()
            for _ in range(calls):
                layer(x)
            best = min(best, (time.perf_counter() - started) / calls * 1e6)
            self._wait()
        return {"us": best}

    def graphs(self, n: int, k: int, m: int, rounds: int) -> dict[str, Any]:
        """Microseconds of a layer of ours in CUDA graphs, and of its bare kernel, in turn."""
        if self.device.type != "cuda":
            return {}
        linear = nn.Linear(k, n, bias=False, device=self.device, dtype=torch.bfloat16)
        holder = nn.ModuleDict({"layer": linear})
        _REPLACE[self.kind](holder, None)
        layer: Any = holder["layer"]
        x = torch.randn(m, k, device=self.device, dtype=torch.bfloat16)
        layer(x)
        (plan,) = layer._plans.values()
        kernel, weight = plan._bound.calls[m].kernel, layer._packed()
        out = torch.empty(m, n, device=self.device, dtype=torch.bfloat16)
        room = x.new_empty(kernel.workspace_bytes(m, n, k), dtype=torch.uint8)
        sides = {
            "layer_us": _graph_of(lambda: layer(x)),
            "bare_us": _graph_of(lambda: kernel.launch(x, weight, None, out, room)),
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                taken[name].append(_replayed_us(sides[name]))
        return {name: statistics.median(values) for name, values in taken.items()}

    def _prompt(self, m: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(m)
        size = self.model.config.vocab_size
        return torch.randint(0, size, (1, m), generator=draw).to(self.device)


_NODES = 64


def _graph_of(call: Callable[[], object]) -> Any:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_NODES):
            call()
    graph.replay()
    return graph


def _replayed_us(graph: Any) -> float:
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(4):
        graph.replay()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / (4 * _NODES)


def _layers(model: nn.Module, kind: str) -> Iterator[tuple[nn.Module, str, Any]]:
    for owner in list(model.modules()):
        for name, child in list(owner.named_children()):
            if type(child).__name__ == kind and name != "lm_head":
                yield owner, name, child


def _with_fused_norms(model: nn.Module) -> None:
    """Norms by torch's own kernel, on all sides: seven small ones would hide what is compared."""

    def norm(module: Any, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(
            x, module.weight.shape, module.weight, module.variance_epsilon
        )

    for module in model.modules():
        if type(module).__name__ == "Qwen3RMSNorm":
            module.forward = partial(norm, module)


def _torchs(model: nn.Module, _table: str | None) -> None:
    """Weights as dequantizing leaves them, so that all sides compute the same function."""
    quantize = importlib.import_module("humming.quantize").quantize
    for _, _, linear in _layers(model, "Linear"):
        weight = quantize(linear.weight.detach(), FORMAT).dequantize(torch.bfloat16)
        linear.weight.data.copy_(weight)


def _ours(model: nn.Module, table: str | None) -> None:
    humming = importlib.import_module("humming")
    humming.convert(model, FORMAT)
    humming.prepare(model, table=table)


class _PeerLayer(nn.Module):
    """A layer of humming-kernels, tuned by its own heuristics."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        n, k = linear.weight.shape
        self.layer: Any = (
            importlib.import_module("humming.layer")
            .HummingLayer(
                shape_n=n,
                shape_k=k,
                weight_config={"dtype": "int4", "group_size": 128},
                input_config=None,
                torch_dtype=torch.bfloat16,
            )
            .cuda()
        )
        for parameter in self.layer.parameters():
            importlib.import_module("humming.testing").random_fill_tensor(parameter)
        self.layer.transform()
        find = importlib.import_module("humming.tune").get_heuristics_config
        self.table = json.dumps(find(self.layer.humming_config))
        self.n, self.k = n, k

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim == 2:
            out: torch.Tensor = self.layer(x, tuning_config=self.table)
            return out
        out = self.layer(x.reshape(-1, self.k), tuning_config=self.table)
        return out.view(*x.shape[:-1], self.n)


def _peers(model: nn.Module, _table: str | None) -> None:
    for owner, name, linear in _layers(model, "Linear"):
        setattr(owner, name, _PeerLayer(linear))


_REPLACE: dict[str, Callable[[nn.Module, str | None], None]] = {
    "torch": _torchs,
    "humming": _ours,
    "humming-kernels": _peers,
}


@torch.inference_mode()
def main() -> None:
    """Answers requests `{"method": [arguments]}` until the other side is gone."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer
    kind, sizes = sys.argv[1], json.loads(sys.argv[2])
    side = Side(kind, sizes, sizes.pop("table", None))
    print(json.dumps(side.memory()), file=answers, flush=True)
    for line in sys.stdin:
        ((method, arguments),) = json.loads(line).items()
        print(json.dumps(getattr(side, method)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
