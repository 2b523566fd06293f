"""Makes small checkpoints: a folder with safetensors and a config. No tests here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

LAYER = "model.layers.0.mlp.down_proj"


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    quantization: Mapping[str, Any] | None,
    shards: int = 1,
    metadata: Mapping[str, str] | None = None,
    **config: Any,
) -> Path:
    """A checkpoint of `tensors` in `folder`, over `shards` files with an index if more than one."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"model_type": "llama", "hidden_size": 64, "torch_dtype": "bfloat16", **config}
    if quantization is not None:
        values["quantization_config"] = dict(quantization)
    (folder / "config.json").write_text(json.dumps(values))
    names = sorted(tensors)
    if shards == 1:
        whole = {name: tensors[name].contiguous() for name in names}
        save_file(whole, folder / "model.safetensors", None if metadata is None else dict(metadata))
        return folder
    places = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        mine = names[shard::shards]
        save_file({name: tensors[name].contiguous() for name in mine}, folder / file)
        places.update(dict.fromkeys(mine, file))
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def under(name: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """`tensors` as those of the module called `name`."""
    return {f"{name}.{suffix}": tensor for suffix, tensor in tensors.items()}


def stream(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 [rows, words]: each row of `codes` as one stream of bits, low bits first. Written bit
    by bit, unlike the reader's."""
    rows, count = codes.shape
    words = -(-count * bits // 32)
    out = torch.zeros(rows, words, dtype=torch.int64)
    for at in range(count * bits):
        bit = (codes[:, at // bits].to(torch.int64) >> (at % bits)) & 1
        out[:, at // 32] |= bit << (at % 32)
    return (out - ((out >> 31) << 32)).to(torch.int32)


def random_codes(rows: int, columns: int, bits: int, seed: int = 0) -> torch.Tensor:
    """int64 [rows, columns] in 0 .. 2^bits - 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 1 << bits, (rows, columns), generator=generator)


def random_scales(rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    """fp16 [rows, columns] above 0."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(rows, columns, generator=generator) * 0.02 + 1e-3).to(torch.float16)
