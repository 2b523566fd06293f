"""torch.compile and AOTInductor over models with HummingLinear layers; and processes that fork.

On a GPU: test_cuda_serving.
"""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import humming

ROWS = (2, 3, 16, 48, 64, 512)  # those of buffers' sizes too


def model_of():
    torch.manual_seed(0)
    first = humming.HummingLinear.from_linear(nn.Linear(64, 48), "int4g32")
    second = humming.HummingLinear.from_linear(nn.Linear(48, 40, bias=False), "int4g32")
    return nn.Sequential(first, nn.SiLU(), second).eval()


@pytest.mark.parametrize("dynamic", [True, pytest.param(None, marks=pytest.mark.slow)])
def test_one_compilation_serves_2_to_512_rows(dynamic):
    """Without `dynamic` torch takes the first size for a constant, and so compiles twice."""
    model, counter = model_of(), CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for m in ROWS:
            x = torch.randn(m, 64)
            assert torch.equal(compiled(x), model(x))
            if m == 3:
                first = counter.frame_count
        assert counter.frame_count == first == (1 if dynamic else 2)
        compiled(torch.randn(1, 64))
        assert counter.frame_count <= first + 1


@pytest.mark.slow
def test_an_aotinductor_package_loads_in_another_process(tmp_path):
    model, path = model_of(), tmp_path / "model.pt2"
    rows = torch.export.Dim("rows", min=2, max=512)
    with torch.no_grad():
        exported = torch.export.export(model, (torch.randn(4, 64),), dynamic_shapes=({0: rows},))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
        x = torch.randn(9, 64)
        torch.save((x, model(x)), tmp_path / "case.pt")
    script = (
        "import sys, torch, humming.ops\n"
        "model = torch._inductor.aoti_load_package(sys.argv[1])\n"
        "x, y = torch.load(sys.argv[2])\n"
        "assert torch.equal(model(x), y)\n"
    )
    arguments = [sys.executable, "-c", script, str(path), str(tmp_path / "case.pt")]
    subprocess.run(arguments, check=True, timeout=300)


def test_a_process_that_forks_after_a_call_serves_on_both_sides():
    script = (
        "import os, torch, humming\n"
        "from torch import nn\n"
        "torch.manual_seed(0)\n"
        "torch.set_num_threads(2)\n"
        "layer = humming.HummingLinear.from_linear(nn.Linear(64, 4096), 'int4g32')\n"
        "x = torch.randn(3, 64)\n"
        "with torch.inference_mode():\n"
        "    y = layer(x).clone()\n"
        "    child = os.fork()\n"
        "    torch.set_num_threads(1)\n"  # torch's own pool does not survive a fork
        "    same = torch.equal(layer(x), y)\n"
        "if child == 0:\n"
        "    os._exit(0 if same else 1)\n"
        "assert same and os.waitpid(child, 0)[1] == 0\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=environment)
