"""The op and gemm against float64: numbers, shapes, strides, torch.compile, wrong use."""

import subprocess
import sys

import pytest
import torch

import humming
from humming.errors import HummingError, LayoutError, TableError
from humming.quantize import pack
from humming.reference import error_bound, matmul_float64
from humming.serving.layer_spec import LayerSpec
from humming.serving.op import through_op

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def made(n, k, seed=0):
    torch.manual_seed(seed)
    return humming.quantize(torch.randn(n, k), "int4g128")


def assert_right(y, x, q, bias=None):
    rows = x.reshape(-1, q.shape[1])
    error = (y.reshape(-1, q.shape[0]).double() - matmul_float64(rows, q, bias)).abs()
    assert y.dtype == x.dtype
    assert bool((error <= error_bound(rows, q, x.dtype, bias)).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(1, 64), (5, 96), (2880, 96), (5001, 64), (5, 2880)])
def test_gemm_is_within_the_bound_of_float64(n, k, dtype):
    q = made(n, k)
    packed, bias = pack(q), torch.randn(n)
    for m in (0, 1, 3, 17):
        x = torch.randn(m, k, dtype=dtype)
        assert_right(humming.gemm(x, packed), x, q)
        assert_right(humming.gemm(x, packed, bias), x, q, bias)


def test_a_large_m_is_within_the_bound():
    q = made(130, 160)
    x = torch.randn(100, 160)
    assert_right(humming.gemm(x, q), x, q)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0, 0],
        lambda x: x,
        lambda x: x[:, :, None],
        lambda x: x[:0],
        lambda x: x[0, ::2],
        lambda x: x[0].as_strided((1, 64), (1, 1)),
        lambda x: x[0, :1].expand(4, 64),
        lambda x: x[0].T.contiguous().T,
        lambda x: torch.cat([x[0], x[0]], 1)[:, 32:96],
    ],
)
def test_any_leading_dimensions_and_strides_are_taken(view):
    q = made(40, 64)
    x = view(torch.randn(3, 6, 64))
    y = humming.gemm(x, pack(q))
    assert y.shape == (*x.shape[:-1], 40)
    assert y.is_contiguous()
    assert_right(y, x, q)


def test_not_finite_activations_stay_so():
    q = made(20, 64)
    x = torch.randn(3, 64)
    x[1, 5], x[2, 7] = float("nan"), float("inf")
    y = humming.gemm(x, q)
    assert y[0].isfinite().all()
    assert y[1].isnan().all()
    assert not y[2].isfinite().any() or (q.codes[:, 7] == 0).any()


@pytest.mark.parametrize(
    ("x", "bias", "sentence"),
    [
        (torch.zeros(2, 65), None, "x.shape"),
        (torch.zeros(2, 64, dtype=torch.float64), None, "x must be fp32, bf16 or fp16"),
        (torch.zeros(()), None, "x.shape"),
        (torch.zeros(2, 64), torch.zeros(39), "bias must be"),
        (torch.zeros(2, 64), torch.zeros(40, dtype=torch.int32), "bias must be"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(x, bias, sentence):
    with pytest.raises(LayoutError, match=sentence):
        humming.gemm(x, made(40, 64), bias)


def test_tensors_of_another_shape_are_refused_before_they_are_read():
    packed = pack(made(40, 64))
    text = LayerSpec.of(pack(made(80, 64))).text
    with pytest.raises(LayoutError, match="packed for n=80"):
        through_op(torch.zeros(1, 64), packed, None, text)
    with pytest.raises(LayoutError, match="LayerSpec"):
        through_op(torch.zeros(1, 64), packed, None, '{"n": 1}')


def test_a_gradient_is_refused_when_it_is_asked_for():
    x = torch.zeros(1, 64, requires_grad=True)
    y = humming.gemm(x, made(40, 64))
    with pytest.raises(LayoutError, match="no backward"):
        y.sum().backward()


def test_a_named_table_serves_and_a_missing_one_is_refused(make_table, tmp_path):
    q = made(48, 64)
    x = torch.randn(2, 64)
    table = make_table(48, 64, prefetch_bytes=4096)
    assert_right(humming.gemm(x, q, table=table.path), x, q)
    with pytest.raises(TableError, match="cannot be read"):
        humming.gemm(x, q, table=tmp_path / "absent.json")


@pytest.mark.parametrize("bias", [None, torch.ones(40)])
@pytest.mark.parametrize("m", [0, 3])
def test_the_op_is_what_torch_expects_of_one(m, bias):
    packed = pack(made(40, 64))
    text = LayerSpec.of(packed).text
    further = (packed.zero_points, packed.row_scales, packed.permutation, packed.input_scale)
    arguments = (torch.randn(m, 64), packed.codes, packed.scales, *further, bias, text)
    torch.library.opcheck(torch.ops.humming.linear.default, arguments)


@pytest.mark.parametrize("first", ["humming", "humming.gemm", "humming.convert"])
def test_the_names_are_functions_whatever_is_imported_first(first):
    script = (
        f"import {first}, humming, torch\n"
        "q = humming.quantize(torch.ones(16, 32), 'int4g128')\n"
        "assert humming.quantize.pack(q).n == 16 and callable(humming.gemm)\n"
        "humming.prepare(humming.convert(torch.nn.Linear(32, 16)), m=1)\n"
        "import humming.gemm as module\nassert module.through_op\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gemm_compiles_without_a_graph_break(backend):
    q = made(40, 64)
    packed = pack(q)
    text = LayerSpec.of(packed).text

    def call(x):
        return through_op(x * 2, packed, None, text) + 1

    x = torch.randn(3, 64)
    with torch.inference_mode():
        compiled = torch.compile(call, backend=backend, fullgraph=True)
        assert torch.equal(compiled(x), call(x))


def test_what_is_no_tensor_model_or_name_is_refused_in_a_sentence():
    q = humming.quantize(torch.randn(8, 64), "int4g32")
    for call, words in (
        (lambda: humming.gemm([1.0], q), "x must be a tensor"),
        (lambda: humming.quantize([[1.0]], "int4"), "w must be a tensor"),
        (lambda: humming.quantize(torch.ones(2, 8), None), "a format is text"),
        (lambda: humming.convert("model", "int4"), "takes an nn.Module"),
    ):
        with pytest.raises(HummingError, match=words):
            call()
