"""Hand a model's quantization to the reader of the tool that wrote it. Where it stands is found in
humming/checkpoints/config/source.py.
"""

from __future__ import annotations

from collections.abc import Callable

from humming.checkpoints.config.config_file import ConfigFile
from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.source import Source, found_source, method_of
from humming.checkpoints.config.text_config import TextConfig
from humming.errors import ModelError
from tuner.workload.quantization.autoround import auto_round
from tuner.workload.quantization.compressed_tensors import compressed_tensors
from tuner.workload.quantization.methods import awq, fbgemm_fp8, fp8, gptq, mxfp4
from tuner.workload.quantization.modelopt import modelopt
from tuner.workload.quantization.quark import quark
from tuner.workload.quantization.scheme import Quantization
from tuner.workload.quantization.weight_only import hqq, torchao

METHODS: dict[str, Callable[[Source], Quantization | None]] = {
    "auto-round": auto_round,
    "awq": awq,
    "compressed-tensors": compressed_tensors,
    "fbgemm-fp8": fbgemm_fp8,
    "fp8": fp8,
    "gptq": gptq,
    "hqq": hqq,
    "modelopt": modelopt,
    "mxfp4": mxfp4,
    "quark": quark,
    "torchao": torchao,
}


def read_quantization(
    config: ConfigFile, text: TextConfig, override: str | None
) -> tuple[Quantization | None, tuple[str, ...]]:
    """The checkpoint's quantization (None: unquantized) and warnings.

    One that cannot be read, or that no format describes, is a ModelError, or, where the user named
    a format (`override`), a warning: the layers are then planned as if unquantized.
    """
    source = found_source(config, text)
    if source is None:
        return None, ()
    try:
        return _reader(source)(source), _notes(source)
    except ModelError as error:
        if override is None:
            raise
        sentence = str(error).rpartition("; ")[0] or str(error)
        return None, (f"{sentence}: layers are planned as if unquantized, in {override}",)


def _reader(source: Source) -> Callable[[Source], Quantization | None]:
    method = method_of(source)
    if method is None:
        raise ModelError(
            f"{source.file}: `{source.path('quant_method')}` must be one of {', '.join(METHODS)}, "
            f"but it is missing; add it to the file"
        )
    reader = METHODS.get(method)
    if reader is None:
        key, known = source.path("quant_method"), ", ".join(METHODS)
        advice = "name a format with --format to plan the layers as if unquantized"
        raise fault(source.file, key, f"one of {known}", method, advice)
    return reader


def _notes(source: Source) -> tuple[str, ...]:
    if source.values.get("lm_head") is not True and source.values.get("quant_lm_head") is not True:
        return ()
    return (f"{source.file}: lm_head is quantized too, but is not planned",)
