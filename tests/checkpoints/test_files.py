"""Files of a checkpoint: sharded, read one layer at a time; truncated, corrupt and hostile ones."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, under, write_checkpoint
from tests.checkpoints.test_gptq import config, gptq_tensors

OTHER = "model.layers.1.mlp.down_proj"
INDEX = "model.safetensors.index.json"
FILE = "model.safetensors"


def checkpoint(folder: Path, shards: int = 1) -> Path:
    tensors = {
        **under(LAYER, gptq_tensors(32, 64, 4, 32, 1)[0]),
        **under(OTHER, gptq_tensors(32, 64, 4, 32, 1, seed=5)[0]),
    }
    return write_checkpoint(folder, tensors, config(4, 32), shards)


def test_one_layer_is_read_without_the_other_files(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    parts = {
        "model-00001-of-00002.safetensors": LAYER,
        "model-00002-of-00002.safetensors": OTHER,
    }
    weight_map = {}
    for seed, (file, name) in zip((0, 5), parts.items(), strict=True):
        tensors = under(name, gptq_tensors(32, 64, 4, 32, 1, seed=seed)[0])
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / file)
        weight_map.update(dict.fromkeys(tensors, file))
    (folder / FILE).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model-00002-of-00002.safetensors").unlink()
    opened = humming.checkpoints.open(folder)
    assert torch.equal(opened.layer(LAYER).dequantized(), gptq_tensors(32, 64, 4, 32, 1)[1])
    with pytest.raises(HummingError, match="is not there"):
        opened.layer(OTHER)


def test_shards_and_iteration(tmp_path: Path) -> None:
    opened = humming.checkpoints.open(checkpoint(tmp_path, shards=3))
    assert [layer.name for layer in opened] == [LAYER, OTHER]
    assert len(opened) == 2
    assert humming.checkpoints.open(tmp_path / "config.json").names == opened.names


def test_tensors_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    files = humming.checkpoints.open(checkpoint(tmp_path)).files
    first, second = (files.tensor(f"{LAYER}.qweight") for _ in range(2))
    assert first.data_ptr() == second.data_ptr()


def _index(entry: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        names = under(LAYER, dict.fromkeys(("qweight", "qzeros", "scales", "g_idx"), entry))
        (folder / INDEX).write_text(json.dumps({"weight_map": names}))

    return spoil


def _raw(content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / FILE).write_bytes(content) and None


def _header(header: Any, data: bytes = b"") -> Callable[[Path], None]:
    text = json.dumps(header).encode()
    return _raw(struct.pack("<Q", len(text)) + text + data)


def _cut(folder: Path) -> None:
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[: len(content) * 2 // 3])


def _only_pickle(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))


def _none(folder: Path) -> None:
    (folder / FILE).unlink()


def _folder(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / "x.safetensors").mkdir()


def _twice(folder: Path) -> None:
    (folder / FILE).rename(folder / "a.safetensors")
    (folder / "b.safetensors").write_bytes((folder / "a.safetensors").read_bytes())


class _Bomb:
    """Would make a file when unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_cut, "whole safetensors file"),
        (_raw(b""), "whole safetensors file"),
        (_raw(b"\xff" * 64), "whole safetensors file"),
        (_raw(struct.pack("<Q", 2**62) + b"{}"), "whole safetensors file"),
        (_raw(struct.pack("<Q", 4) + b"[1]]"), "whole safetensors file"),
        (_header({"a": ONE}, b"\0" * 4), "whole safetensors file"),
        (_header({"a": ONE, "b": ONE}, b"\0" * 8), "whole safetensors file"),
        (_header({"a": {**ONE, "data_offsets": [8, 0]}}, b"\0" * 8), "whole safetensors file"),
        (_header({"a": {**ONE, "shape": [2**40, 2**40]}}, b"\0" * 8), "whole safetensors file"),
        (_header({"a": {**ONE, "dtype": "F99"}}, b"\0" * 8), "whole safetensors file"),
        (_raw(pickle.dumps(_Bomb())), "is a pickle"),
        (_raw(b"PK\x03\x04" + b"\0" * 64), "is a pickle"),
        (_only_pickle, "is a pickle"),
        (_none, "but has none"),
        (_folder, "regular file"),
        (_twice, "must lie in one file"),
        (_index("../secret.safetensors"), "inside the folder"),
        (_index("/etc/passwd"), "inside the folder"),
        (_index("C:\\x.safetensors"), "inside the folder"),
        (_index("a/../../b.safetensors"), "inside the folder"),
        (_index("pytorch_model.bin"), "is a pickle"),
        (_index(""), "inside the folder"),
        (_index("a\0b"), "inside the folder"),
        (_index(3), "file names"),
        (_index("gone.safetensors"), "is not there"),
        (lambda folder: (folder / INDEX).write_text("[]") and None, "JSON object"),
        (lambda folder: (folder / INDEX).write_text("{}") and None, "weight_map"),
        (lambda folder: (folder / INDEX).write_text('{"weight_map": []}') and None, "weight_map"),
    ],
)
def test_bad_files_are_one_sentence(
    tmp_path: Path, spoil: Callable[[Path], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    spoil(folder)
    with pytest.raises(HummingError, match=said) as caught:
        humming.checkpoints.open(folder).layer(LAYER)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "exploded").exists()


def test_a_tensor_that_the_index_promises_in_vain(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    names = {f"{LAYER}.{suffix}": FILE for suffix in ("qweight", "qzeros", "scales", "g_idx")}
    (folder / INDEX).write_text(json.dumps({"weight_map": {**names, f"{LAYER}.bias": FILE}}))
    with pytest.raises(HummingError, match="as the index says"):
        humming.checkpoints.open(folder).layer(LAYER)


def test_names_that_are_not_there_get_the_nearest(tmp_path: Path) -> None:
    opened = humming.checkpoints.open(checkpoint(tmp_path))
    with pytest.raises(HummingError, match=f"did you mean {LAYER}"):
        opened.layer("model.layers.0.mlp.down")
    with pytest.raises(HummingError, match="several"):
        opened.layer([])
    with pytest.raises(HummingError, match="experts 0, 1, 2"):
        opened.experts("model.layers.0.mlp.experts", "down_proj")


def test_a_model_without_quantization_has_float_layers(tmp_path: Path) -> None:
    tensors = {
        f"{LAYER}.weight": torch.randn(8, 6).half(),
        f"{LAYER}.bias": torch.randn(8).half(),
        "model.norm.weight": torch.ones(8),
        "ids.weight": torch.ones(4, 4, dtype=torch.int32),
    }
    opened = humming.checkpoints.open(
        write_checkpoint(tmp_path, tensors, None, torch_dtype="float16")
    )
    assert opened.names == (LAYER,)
    layer = opened.layer(LAYER, rows=(1, 2))
    assert layer.format == "fp16"
    assert layer.dtype == torch.float16
    assert torch.equal(layer.weight, tensors[f"{LAYER}.weight"][4:])
    with pytest.raises(HummingError, match="must be float32 or bfloat16 or float16"):
        opened.layer("ids")
