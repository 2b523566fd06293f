"""Readers of public formats, one a file: its docstring says how the format lies in a file and where
that is written. This is their table.
"""

from __future__ import annotations

from humming.checkpoints.readers import (
    autoround,
    awq,
    bitnet,
    bitsandbytes,
    compressed_tensors,
    fp8,
    gpt_oss,
    gptq,
    hqq,
    modelopt,
    quark,
    torchao,
)
from humming.checkpoints.registry import Reader

READERS: tuple[Reader, ...] = (
    autoround.READER,
    awq.READER,
    bitnet.READER,
    bitsandbytes.READER,
    compressed_tensors.READER,
    fp8.READER,
    gpt_oss.READER,
    gptq.READER,
    hqq.READER,
    modelopt.READER,
    quark.READER,
    torchao.READER,
)
