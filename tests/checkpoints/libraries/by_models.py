"""Checkpoints that tools write of a whole model, one tiny Llama: ModelOpt and Quark. Reading them
back is the tools' own work too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from tests.checkpoints.libraries.made import Made


def tiny_llama(hidden: int, intermediate: int) -> Any:
    """A Llama of one layer in bf16."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=32,
    )
    config.architectures = ["LlamaForCausalLM"]
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def tiny_experts(kind: str) -> Any:
    """A model of one layer of four stacked experts, "Llama4" or "GptOss", in bf16."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 1}
    more = {"moe_layers": [0], "interleave_moe_layer_step": 1} if kind == "Llama4" else {}
    config_class = getattr(transformers, f"{kind}TextConfig", None)
    config_class = config_class or getattr(transformers, f"{kind}Config")
    config = config_class(**sizes, **heads, **experts, **more)
    config.architectures = [f"{kind}ForCausalLM"]
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16).eval()


def exported(
    folder: Path, model: Any, scheme: str
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the config of `model` as ModelOpt quantizes and exports it."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    tokens = torch.arange(8).reshape(1, 8)
    mtq.quantize(model, getattr(mtq, scheme), lambda whole: whole(tokens))
    export_hf_checkpoint(model, dtype=torch.bfloat16, export_dir=str(folder))
    config = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
    tensors = load_file(folder / "model.safetensors")
    return tensors, {"quant_method": "modelopt", **config}


def by_modelopt(folder: Path, scheme: str, hidden: int, intermediate: int) -> Made:
    """A model quantized by one of ModelOpt's configs, such as "NVFP4_DEFAULT_CFG"."""
    tensors, quantization = exported(folder, tiny_llama(hidden, intermediate), scheme)
    modules = [name.removesuffix(".weight_scale") for name in tensors if "weight_scale" in name]
    expected = {
        module: _modelopt_weight(tensors, module)
        for module in modules
        if f"{module}.weight" in tensors
    }
    return Made(tensors, quantization, expected)


def experts_by_modelopt(folder: Path, scheme: str, kind: str) -> Made:
    """A model of stacked experts; `expected` are those of one block, gate and up apart."""
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    tensors, quantization = exported(folder, tiny_experts(kind), scheme)
    expected = {}
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        block, scale = name.rpartition(".")[0], tensors[f"{name}_weight_scale"]
        for expert, stored in enumerate(tensors[name]):
            rows = stored.t().contiguous()
            if rows.dtype == torch.uint8:
                shape = torch.Size((rows.shape[0], 2 * rows.shape[1]))
                fine = scale[expert].view(torch.uint8).t().contiguous().view(scale.dtype)
                second = tensors[f"{name}_weight_scale_2"]
                weight = NVFP4QTensor(shape, torch.float32, rows).dequantize(
                    torch.float32, scale=fine, double_scale=second, block_sizes={-1: 16}
                )
            else:
                weight = rows.double() * scale.double()
            if name.endswith("down_proj"):
                expected[f"{block}.{expert}.down_proj"] = weight
                continue
            halves = (weight[0::2], weight[1::2]) if kind == "GptOss" else weight.chunk(2)
            for part, half in zip(("gate_proj", "up_proj"), halves, strict=True):
                expected[f"{block}.{expert}.{part}"] = half
    return Made(tensors, quantization, expected)


def _modelopt_weight(tensors: dict[str, torch.Tensor], module: str) -> torch.Tensor:
    """By ModelOpt's tensor classes where it has one, in fp32; else code times scale."""
    from modelopt.torch.quantization.qtensor import MXFP4QTensor, NVFP4QTensor

    stored, scale = tensors[f"{module}.weight"], tensors[f"{module}.weight_scale"]
    n = stored.shape[0]
    shape = torch.Size((n, 2 * stored.shape[1]))
    if stored.dtype == torch.uint8 and scale.dtype == torch.float8_e4m3fn:
        second = tensors[f"{module}.weight_scale_2"]
        tensor = NVFP4QTensor(shape, torch.float32, stored)
        return tensor.dequantize(
            torch.float32, scale=scale, double_scale=second, block_sizes={-1: 16}
        )
    if stored.dtype == torch.uint8 and scale.dtype == torch.uint8:
        tensor = MXFP4QTensor(shape, torch.float32, stored)
        return tensor.dequantize(torch.float32, scale=scale, block_sizes={-1: 32})
    if scale.dtype == torch.uint8:
        wide = torch.exp2(scale.double() - 127).repeat_interleave(32, 1)
        return stored.double() * wide[:, : stored.shape[1]]
    if stored.dtype == torch.uint8:  # two rows a byte
        rows = torch.stack([stored & 15, stored >> 4], 1).reshape(2 * n, -1).int()
        codes = torch.where(rows > 7, rows - 16, rows).double()
        return codes * scale.double().repeat_interleave(codes.shape[1] // scale.shape[1], 1)
    codes = stored.double()
    if scale.ndim == 4:
        blocks = codes.view(scale.shape[0], n // scale.shape[0], scale.shape[2], -1)
        return (blocks * scale.double()).view_as(codes)
    return codes * scale.double().reshape(-1, 1)


def by_quark(folder: Path, spec: Callable[[Any], Any], hidden: int, pack: str = "reorder") -> Made:
    """A model quantized as `spec` of Quark's config module says, and imported again by Quark."""
    import quark.torch
    import quark.torch.quantization.config.config as specs

    model = tiny_llama(hidden, hidden + 32)
    config = specs.QConfig(
        global_quant_config=specs.QLayerConfig(weight=spec(specs)), exclude=["lm_head"]
    )
    quantizer = quark.torch.ModelQuantizer(config)
    data = torch.utils.data.DataLoader([torch.arange(8)], batch_size=1)
    model = quantizer.freeze(quantizer.quantize_model(model, data))
    quark.torch.export_safetensors(
        model, str(folder), custom_mode="quark", weight_format="real_quantized", pack_method=pack
    )
    read = quark.torch.import_model_from_safetensors(tiny_llama(hidden, hidden + 32), str(folder))
    tensors = load_file(folder / "model.safetensors")
    modules = [
        name.removesuffix(".weight_scale") for name in tensors if name.endswith(".weight_scale")
    ]
    expected = {}
    for module in modules:
        layer = read.get_submodule(module)
        expected[module] = layer._get_qweight(layer.weight)
    values = json.loads((folder / "config.json").read_text())
    return Made(tensors, values["quantization_config"], expected)
