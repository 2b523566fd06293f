"""HummingMoE.from_checkpoint against the blocks of transformers: routers, activations, shared
experts, packings, and the shares of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming
from humming.errors import CheckpointError, HummingError, ModelError
from tests.checkpoints.making import stream, write_checkpoint

transformers = pytest.importorskip("transformers", minversion="5.0")

H, WIDTH, EXPERTS = 64, 32, 8
BLOCK = "model.layers.1.mlp"
COMMON = {"hidden_size": H, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_act": "silu"}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mixtral": (
        "Mixtral",
        "MixtralSparseMoeBlock",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": WIDTH},
    ),
    "qwen2_moe": (
        "Qwen2Moe",
        "Qwen2MoeSparseMoeBlock",
        {
            "num_experts": EXPERTS,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": WIDTH,
            "shared_expert_intermediate_size": 48,
            "norm_topk_prob": False,
        },
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        "Qwen3MoeSparseMoeBlock",
        {
            "num_experts": EXPERTS,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": WIDTH,
            "norm_topk_prob": True,
        },
    ),
    "deepseek_v3": (
        "DeepseekV3",
        "DeepseekV3MoE",
        {
            "n_routed_experts": EXPERTS,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": WIDTH,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
        },
    ),
    "gpt_oss": (
        "GptOss",
        "GptOssMLP",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": WIDTH},
    ),
    "llama4_text": (
        "Llama4Text",
        "Llama4TextMoe",
        {
            "num_local_experts": EXPERTS,
            "num_experts_per_tok": 1,
            "intermediate_size": WIDTH,
            "head_dim": 16,
        },
    ),
}
PARTS = {"mixtral": ("w1", "w3", "w2")}


def block_of(kind: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """transformers' block, whose weights int8 with a scale a row holds exactly."""
    prefix, name, sizes = KINDS[kind]
    config = getattr(transformers, f"{prefix}Config")(**COMMON, **sizes)
    module_name = type(config).__module__.replace("configuration", "modeling")
    module = getattr(__import__(module_name, fromlist=[name]), name)(config).float().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in (*module.parameters(), *module.buffers()):
            codes = torch.randint(-127, 128, parameter.shape, generator=generator).float()
            transposed = kind in ("gpt_oss", "llama4_text") and parameter.ndim == 3
            if parameter.ndim > 1:
                (codes[..., 0, :] if transposed else codes[..., 0]).fill_(127)
            parameter.copy_(codes / 512)
    return module, {**COMMON, **sizes, "model_type": kind}


def stored(kind: str, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The block's tensors as its checkpoints have them: one by one, but for gpt-oss and Llama 4."""
    found = {}
    for name, tensor in module.state_dict().items():
        if tensor.ndim == 3 and kind not in ("gpt_oss", "llama4_text"):
            gate, up, down = PARTS.get(kind, ("gate_proj", "up_proj", "down_proj"))
            for expert, weight in enumerate(tensor):
                of = f"experts.{expert}"
                if name.endswith("down_proj"):
                    found[f"{of}.{down}.weight"] = weight
                else:
                    found[f"{of}.{gate}.weight"], found[f"{of}.{up}.weight"] = weight.chunk(2)
        else:
            found[name] = tensor
    return {f"{BLOCK}.{name}": tensor.clone() for name, tensor in found.items()}


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Path, Any]:
    kind = request.param
    module, config = block_of(kind)
    folder = tmp_path_factory.mktemp(kind)
    write_checkpoint(folder, stored(kind, module), None, shards=2, **config)
    return folder, module


def answer(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        out = module(x[None])
    return (out[0] if isinstance(out, tuple) else out).view(x.shape)


def test_a_block_gives_what_transformers_gives(case):
    folder, module = case
    ours = humming.HummingMoE.from_checkpoint(folder, BLOCK, dtype=torch.float32, format="int8")
    x = torch.randn(9, H, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        out = ours(x)
        assert torch.equal(ours(x), out)
    torch.testing.assert_close(out, answer(module, x), atol=2e-4, rtol=2e-4)


@pytest.mark.slow
def test_ranks_add_up(case):
    folder, module = case
    x = torch.randn(9, H, generator=torch.Generator().manual_seed(2))
    for share in ("tp", "ep"):
        total = torch.zeros(9, H)
        for rank in range(2):
            part = humming.HummingMoE.from_checkpoint(
                folder, BLOCK, dtype=torch.float32, format="int8g16", **{share: (rank, 2)}
            )
            with torch.inference_mode():
                total += part(x)
        torch.testing.assert_close(total, answer(module, x), atol=3e-2, rtol=3e-2)


@pytest.mark.slow
def test_its_state_comes_back(case):
    folder, _ = case
    first = humming.HummingMoE.from_checkpoint(folder, BLOCK, dtype=torch.float32, format="int8")
    other = humming.HummingMoE.from_checkpoint(folder, BLOCK, dtype=torch.float32, format="int8")
    with torch.no_grad():
        other.experts.up.packed_codes.zero_()
        other.router.zero_()
    other.load_state_dict(first.state_dict())
    x = torch.randn(5, H)
    with torch.inference_mode():
        assert torch.equal(other(x), first(x))


def test_gpt_oss_in_mxfp4_is_read_as_it_is_stored(tmp_path):
    module, config = block_of("gpt_oss")
    generator = torch.Generator().manual_seed(3)
    tensors = {f"{BLOCK}.{n}": t for n, t in module.state_dict().items() if n.startswith("router")}
    for name, n, k in (("gate_up_proj", 2 * WIDTH, H), ("down_proj", H, WIDTH)):
        start = f"{BLOCK}.experts.{name}"
        shape = (EXPERTS, n, k // 32)
        blocks = torch.randint(0, 256, (*shape, 16), generator=generator).to(torch.uint8)
        tensors[f"{start}_blocks"] = blocks
        scales = torch.randint(120, 124, shape, generator=generator)
        tensors[f"{start}_scales"] = scales.to(torch.uint8)
        tensors[f"{start}_bias"] = torch.randn(EXPERTS, n, generator=generator)
    write_checkpoint(tmp_path, tensors, {"quant_method": "mxfp4"}, **config)
    ours = humming.HummingMoE.from_checkpoint(tmp_path, BLOCK, dtype=torch.float32)
    assert ours.experts.up.spec.format == "mxfp4"
    up = torch.stack([q.dequantize(torch.float32) for q in ours.experts.up.quantized()])
    down = torch.stack([q.dequantize(torch.float32) for q in ours.experts.down.quantized()])
    with torch.no_grad():
        mixed = torch.stack([up[:, :WIDTH], up[:, WIDTH:]], 2).flatten(1, 2)
        module.experts.gate_up_proj.copy_(mixed.transpose(1, 2))
        module.experts.down_proj.copy_(down.transpose(1, 2))
        module.experts.gate_up_proj_bias.copy_(tensors[f"{BLOCK}.experts.gate_up_proj_bias"])
        module.experts.down_proj_bias.copy_(tensors[f"{BLOCK}.experts.down_proj_bias"])
    x = torch.randn(7, H)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), answer(module, x), atol=1e-3, rtol=1e-3)


def test_stacked_experts_in_fp8_are_read_with_their_scales(tmp_path):
    module, config = block_of("qwen3_moe")
    tensors = {n: t for n, t in stored("qwen3_moe", module).items() if ".experts." not in n}
    generator = torch.Generator().manual_seed(5)
    wholes = {}
    for name, n, k in (("gate_up_proj", 2 * WIDTH, H), ("down_proj", H, WIDTH)):
        codes = torch.randn(EXPERTS, n, k, generator=generator).to(torch.float8_e4m3fn)
        scales = torch.rand(EXPERTS, generator=generator) / 16 + 0.01
        wholes[name] = codes.float() * scales[:, None, None]
        tensors[f"{BLOCK}.experts.{name}"] = codes
        tensors[f"{BLOCK}.experts.{name}_scale_inv"] = scales
    write_checkpoint(tmp_path, tensors, {"quant_method": "fp8"}, **config)
    ours = humming.HummingMoE.from_checkpoint(tmp_path, BLOCK, dtype=torch.float32)
    for stack, whole in ((ours.experts.up, "gate_up_proj"), (ours.experts.down, "down_proj")):
        read = torch.stack([q.dequantize(torch.float32) for q in stack.quantized()])
        torch.testing.assert_close(read, wholes[whole])


def test_kimi_in_int4_of_groups_of_32_is_read_as_it_is_stored(tmp_path):
    module, config = block_of("deepseek_v3")
    tensors = stored("deepseek_v3", module)
    generator = torch.Generator().manual_seed(4)
    for name in [name for name in tensors if ".experts." in name]:
        n, k = tensors.pop(name).shape
        codes = torch.randint(0, 16, (n, k), generator=generator)
        start = name.removesuffix("weight")
        tensors[f"{start}weight_packed"] = stream(codes, 4)
        tensors[f"{start}weight_scale"] = torch.rand(n, k // 32, generator=generator) / 64
        tensors[f"{start}weight_shape"] = torch.tensor([n, k])
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["re:.*shared_experts.*", "re:.*gate$"],
    }
    config = {**config, "model_type": "kimi_k2"}
    write_checkpoint(tmp_path, tensors, quantization, **config)
    ours = humming.HummingMoE.from_checkpoint(tmp_path, BLOCK, dtype=torch.float32)
    assert ours.experts.up.spec.format == "int4g32"
    with torch.no_grad():
        for name, stack in (("gate_up_proj", ours.experts.up), ("down_proj", ours.experts.down)):
            whole = torch.stack([q.dequantize(torch.float32) for q in stack.quantized()])
            getattr(module.experts, name).copy_(whole)
    x = torch.randn(7, H)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), answer(module, x), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("gpt_oss", "experts.gate_up_proj_bias"),
        ("gpt_oss", "router.weight"),
        ("gpt_oss", "router.bias"),
        ("deepseek_v3", "gate.e_score_correction_bias"),
        ("qwen2_moe", "shared_expert_gate.weight"),
    ],
)
def test_floats_that_are_not_finite_are_refused_by_name(tmp_path, kind, name):
    module, config = block_of(kind)
    tensors = stored(kind, module)
    tensors[f"{BLOCK}.{name}"].view(-1)[-1] = torch.nan
    write_checkpoint(tmp_path, tensors, None, **config)
    with pytest.raises(CheckpointError, match=rf"`{BLOCK}\.{name}` must be finite"):
        humming.HummingMoE.from_checkpoint(tmp_path, BLOCK, format="int8")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("gpt_oss", "experts.down_proj_bias"),
        ("gpt_oss", "router.bias"),
        ("deepseek_v3", "gate.e_score_correction_bias"),
        ("qwen2_moe", "shared_expert_gate.weight"),
    ],
)
def test_a_block_without_a_float_that_its_form_has_is_refused_by_name(tmp_path, kind, name):
    module, config = block_of(kind)
    tensors = stored(kind, module)
    del tensors[f"{BLOCK}.{name}"]
    write_checkpoint(tmp_path, tensors, None, **config)
    with pytest.raises(CheckpointError, match=rf"must hold a tensor `{BLOCK}\.{name}`"):
        humming.HummingMoE.from_checkpoint(tmp_path, BLOCK, format="int8")


def test_a_shared_experts_gate_may_be_quantized(tmp_path):
    module, config = block_of("qwen2_moe")
    tensors, gate = stored("qwen2_moe", module), f"{BLOCK}.shared_expert_gate.weight"
    codes = (tensors[gate] * 256).to(torch.float8_e4m3fn)
    tensors |= {gate: codes, f"{gate}_scale": torch.tensor([2.0**-8])}
    write_checkpoint(tmp_path, tensors, {"quant_method": "fp8"}, **config)
    ours = humming.HummingMoE.from_checkpoint(tmp_path, BLOCK, dtype=torch.float32, format="int8")
    assert torch.equal(ours.shared_gate, codes.float() / 256)


def test_what_is_not_known_is_refused_in_a_sentence(case, tmp_path):
    folder, _ = case
    with pytest.raises(HummingError):
        humming.HummingMoE.from_checkpoint(folder, "model.layers.7.mlp", format="int8")
    with pytest.raises(HummingError, match="expert-parallel"):
        humming.HummingMoE.from_checkpoint(folder, BLOCK, format="int8", ep=(0, 3))
    write_checkpoint(tmp_path, {"a.weight": torch.zeros(2, 2)}, None, model_type="mixtrall")
    with pytest.raises(ModelError, match="did you mean"):
        humming.HummingMoE.from_checkpoint(tmp_path, BLOCK)
