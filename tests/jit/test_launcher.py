"""Recorded launches, made again with other addresses: what the driver is handed, byte for byte.

There is no driver here: callbacks stand for its functions. On a GPU: runtime/test_cuda_serving.
"""

import ctypes

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from humming.errors import LaunchError
from humming.jit.cuda import launcher
from humming.jit.cuda.driver import INT, LONG, POINTER
from humming.jit.cuda.launcher import PreparedCall, native_launcher
from humming.jit.cuda.recording import RECORDER, Moving, RecordedLaunch, recorded
from humming.jit.cuda.tensor_map import SWIZZLE_128, UINT16, TensorMap

CONTEXT, STREAM = 0x11110000, 0x5555


class Function:
    """As driver.DeviceFunction, as far as recorded launches ask for it."""

    handle, context_handle, smem_bytes = 0x7777, CONTEXT, 4096

    def __init__(self):
        self.enqueued = []

    def launch(self, grid, threads, values, types, cluster=1, dependent=False):
        if RECORDER.launches is not None:
            launch = RecordedLaunch(self, grid, threads, values, types, cluster, dependent)
            RECORDER.launches.append(launch)
            return
        self.enqueued.append((grid, threads, values, cluster, dependent))


class Driver:
    """Callbacks by the C signatures of CUDA's driver; they write down what they are called with."""

    def __init__(self, current=CONTEXT, error=0):
        self.launches, self.contexts, self.encoded = [], [], []
        word, u32, u64 = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64

        def launch(config, function, arguments, _extra):
            raw = ctypes.string_at(config, 56)
            head = [int.from_bytes(raw[at : at + 4], "little") for at in range(0, 28, 4)]
            stream, attributes = (int.from_bytes(raw[at : at + 8], "little") for at in (32, 40))
            count = int.from_bytes(raw[48:52], "little")
            words = ctypes.string_at(attributes, 72 * count)
            places = ctypes.cast(arguments, ctypes.POINTER(u64))
            self.launches.append((head, stream, function, words, self._values(places)))
            return error

        def encode(room, *rest):
            ctypes.memset(room, 0xAB, 128)
            numbers = [*rest[:3], *rest[7:]]
            shape = [ctypes.cast(rest[3], ctypes.POINTER(u64))[i] for i in range(2)]
            row = ctypes.cast(rest[4], ctypes.POINTER(u64))[0]
            box = [ctypes.cast(rest[5], ctypes.POINTER(u32))[i] for i in range(2)]
            self.encoded.append((numbers[2], shape, row, box, room % 64))
            return 0

        def get(out):
            ctypes.cast(out, ctypes.POINTER(u64))[0] = current
            return 0

        kinds = {
            "cuLaunchKernelEx": (launch, [u64] * 4),
            "cuTensorMapEncodeTiled": (encode, [u64, u32, u32, *[u64] * 5, *[u32] * 4]),
            "cuCtxGetCurrent": (get, [u64]),
            "cuCtxPushCurrent": (lambda context: self.contexts.append(context) or 0, [u64]),
            "cuCtxPopCurrent": (lambda _: self.contexts.append(None) or 0, [u64]),
        }
        self.sizes = []
        self.kept = {
            name: ctypes.CFUNCTYPE(word, *types)(call) for name, (call, types) in kinds.items()
        }

    def address(self, symbol):
        return ctypes.cast(self.kept[symbol.decode()], ctypes.c_void_p).value

    def _values(self, places):
        return [ctypes.string_at(places[i], size) for i, size in enumerate(self.sizes)]


@pytest.fixture
def driver(monkeypatch):
    def install(**options):
        made = Driver(**options)
        monkeypatch.setattr(launcher, "driver_function", made.address)
        return made

    return install


def a_map(address, byte=0x17):
    made = TensorMap.from_buffer_copy(bytes([byte]) * 128)
    made.address, made.element, made.shape = address, UINT16, (5, 64)
    made.row_bytes, made.box, made.swizzle = 128, (8, 64), SWIZZLE_128
    return made


def test_the_launcher_compiles_here():
    assert native_launcher()


def test_addresses_move_and_the_rest_stays(driver):
    made = driver()
    made.sizes = [8, 8, 8, 8, 4, 8, 8]
    function = Function()
    launch = RecordedLaunch(
        function,
        (3, 7),
        96,
        (Moving(0, 16), 0xABCDEF00, Moving(1, 0), Moving(2, 256), -5, 1 << 40, Moving(3, 4)),
        (POINTER, POINTER, POINTER, POINTER, INT, LONG, POINTER),
        4,
        True,
    )
    call = PreparedCall([launch, launch], 10)
    assert call.native and call.words == 10
    assert call.launch(0x1000, 0x2000, 0x3000, 0x4000, STREAM) == 0
    assert call.calls == 1 and made.contexts == [] and len(made.launches) == 2
    head, stream, handle, attributes, values = made.launches[0]
    assert head == [3, 7, 1, 96, 1, 1, 4096] and stream == STREAM and handle == function.handle
    assert len(attributes) == 144
    wanted = [0x1010, 0xABCDEF00, 0x2000, 0x3100, -5, 1 << 40, 0x4004]
    assert [int.from_bytes(v, "little", signed=True) for v in values] == wanted


def test_maps_over_moving_matrices_are_encoded_anew(driver):
    made = driver()
    made.sizes = [128, 128]
    maps = (a_map(0x1000), a_map(0x9000, 0x23))
    launch = RecordedLaunch(
        Function(), (1, 1), 32, maps, (None, None), 1, False, ((0, Moving(0, 32)),)
    )
    call = PreparedCall([launch], 0)
    assert call.launch(0x8000, 0, 0, 0, STREAM) == 0
    assert made.encoded == [(0x8020, [64, 5], 128, [64, 8], 0)]
    assert made.launches[0][4] == [b"\xab" * 128, b"\x23" * 128]


def test_an_uneven_x_and_a_refusal_are_told_and_a_foreign_context_is_left_as_it_was(driver):
    made = driver(current=0x99, error=700)
    launch = RecordedLaunch(Function(), (1, 1), 32, (Moving(0, 0),), (POINTER,), 1, False)
    call = PreparedCall([launch], 0)
    assert call.launch(0x1008, 0, 0, 0, 0) == -1 and made.contexts == []
    assert call.launch(0x1000, 0, 0, 0, 0) == 700 and call.calls == 0
    assert made.contexts == [CONTEXT, None]


def test_without_a_compiler_the_binding_does_the_same(driver, monkeypatch):
    monkeypatch.setattr(launcher, "_library", lambda: None)
    function = Function()
    launch = RecordedLaunch(
        function, (2, 1), 64, (Moving(0, 8), 7, Moving(1, 0)), (POINTER, INT, POINTER), 2, True
    )
    call = PreparedCall([launch], 0)
    assert not call.native and call.calls == 0
    assert call.launch(0x1000, 0x2000, 0, 0, 0) == 0
    assert function.enqueued == [((2, 1), 64, (0x1008, 7, 0x2000), 2, True)]
    assert call.launch(0x1001, 0x2000, 0, 0, 0) == -1

    def refuse(*_):
        raise LaunchError("no")

    function.launch = refuse
    assert call.launch(0x1000, 0x2000, 0, 0, 0) == -1


@given(st.integers(0, 63), st.integers(0, 63), st.booleans())
def test_recording_tells_what_moves_from_what_stays(x_at, out_at, known):
    x, out, weight, other = (torch.zeros(64, dtype=torch.uint8) for _ in range(4))
    function = Function()
    address = (weight if known else other).data_ptr()

    def call():
        values = (x.data_ptr() + x_at, out.data_ptr() + out_at, address, 0, 9)
        function.launch((1, 1), 32, values, (POINTER,) * 4 + (INT,))

    found = recorded(call, [(t.data_ptr(), 64) for t in (x, out)], [weight])
    assert RECORDER.launches is None and function.enqueued == []
    if not known:
        assert found is None
        return
    (launch,), words = found
    assert launch.values == (Moving(0, x_at), Moving(1, out_at), address, 0, 9) and words == 0


def test_what_enqueues_nothing_or_takes_an_unknown_map_is_not_recorded():
    x = torch.zeros(64, dtype=torch.uint8)
    spans = [(x.data_ptr(), 64)]
    assert recorded(lambda: None, spans, []) is None
    plain = TensorMap()
    function = Function()
    assert recorded(lambda: function.launch((1, 1), 32, (plain,), (None,)), spans, []) is None
    mapped = a_map(x.data_ptr() + 32)
    (launch,), _ = recorded(lambda: function.launch((1, 1), 32, (mapped,), (None,)), spans, [])
    assert launch.moving_maps == ((0, Moving(0, 32)),) and launch.values == (mapped,)
