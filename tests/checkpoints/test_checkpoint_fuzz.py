"""Files and configs changed at random, in bytes, headers and values: a layer is read, or refused in
one sentence with exit code 2; nothing else happens.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, under, write_checkpoint
from tests.checkpoints.test_bitsandbytes import CONFIG, four_bits
from tests.checkpoints.test_fp8 import fp8, gpt_oss_tensors

DATA = Path(__file__).with_name("data")
FILE = "model.safetensors"
VALUES = (
    0, -1, 1, 2**31, 2**63, 2**70, 1.5, None, "x", "4", [], {}, True, [1, 2], [-1, -1], [[1]],
    {"a": {}}, float("nan"), "gptq", "awq", "fp8", "mxfp4", "auto-round", "static",
)  # fmt: skip
DTYPES = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E8M0", "F4", "F6_E2M3", "C64", "I64", "I32",
          "U16", "I8", "U8", "BOOL", "F99")  # fmt: skip
MORE_KEYS = ("quant_method", "version", "checkpoint_format", "packing_format", "dynamic", "bits",
             "extra_config", "weight_block_size", "activation_scheme", "group_size")  # fmt: skip


def _in_bytes(content: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
    return bytes(spoilt)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _in_header(content: bytes, draw: random.Random) -> bytes:
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:end])
    name = draw.choice([name for name in header if name != "__metadata__"])
    entry, what = header[name], draw.choice(("dtype", "shape", "data_offsets", "gone", "twice"))
    if what == "gone":
        del header[name]
    elif what == "twice":
        header["other.weight"] = entry
    elif what == "dtype":
        entry["dtype"] = draw.choice(DTYPES)
    else:
        sizes = entry[what]
        entry[what] = draw.choice(
            ([0], [], [2**62, 2], sizes[::-1], [*sizes, 1], [size // 2 for size in sizes])
        )
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[end:]


def _in_config(config: dict[str, Any], draw: random.Random) -> None:
    """Changes a value, at any depth."""
    at: Any = config["quantization_config"]
    while True:
        key = draw.choice((*at, *MORE_KEYS) if at is config["quantization_config"] else (*at,))
        inner = at.get(key)
        if not isinstance(inner, dict) or not inner or draw.random() < 0.3:
            at[key] = draw.choice(VALUES)
            return
        at = inner


def _made(folder: Path) -> list[Path]:
    """Formats of which data/ has no file."""
    blocks = {"weight": fp8(40, 40), "weight_scale_inv": torch.ones(3, 3)}
    stack = {
        "gate_up_proj": torch.stack([fp8(32, 16)] * 2),
        "gate_up_proj_scale_inv": torch.ones(2),
    }
    made = {
        "experts": (under("model.experts", stack), {"quant_method": "fp8"}),
        "fp8": (under(LAYER, blocks), {"quant_method": "fp8", "weight_block_size": [16, 16]}),
        "mxfp4": (gpt_oss_tensors(2, 32, 32), {"quant_method": "mxfp4"}),
        "fp4": (under(LAYER, four_bits(8, 64, "fp4", nested=True)[0]), CONFIG),
    }
    return [write_checkpoint(folder / name, *both) for name, both in made.items()]


def _try(folder: Path, content: bytes, config: dict[str, Any]) -> bool:
    """Whether all layers could be read."""
    (folder / FILE).write_bytes(content)
    (folder / "config.json").write_text(json.dumps(config))
    try:
        for headers_only in (True, False):
            for layer in humming.checkpoints.open(folder, headers_only):
                if not headers_only:
                    layer.dequantized(torch.float32)
    except HummingError as error:
        assert error.exit_code == 2, error
        assert "\n" not in str(error), error
        return False
    return True


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("seed", "times"), [(0, 300), pytest.param(1, 8000, marks=pytest.mark.slow)]
)
def test_whatever_is_in_the_files(tmp_path: Path, seed: int, times: int) -> None:
    draw = random.Random(seed)
    folders = [*sorted(path for path in DATA.iterdir()), *_made(tmp_path)]
    sound = [
        ((folder / FILE).read_bytes(), json.loads((folder / "config.json").read_text()))
        for folder in folders
    ]
    spoilt = tmp_path / "spoilt"
    spoilt.mkdir()
    read = 0
    for _ in range(times):
        content, config = draw.choice(sound)
        config = json.loads(json.dumps(config))
        change = draw.choice((_in_bytes, _cut, _in_header, _in_header, None, None))
        if change is None:
            _in_config(config, draw)
        else:
            content = change(content, draw)
        read += _try(spoilt, content, config)
    assert 0 < read < times
