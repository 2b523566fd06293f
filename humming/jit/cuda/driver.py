"""One function of a cubin on one GPU, by CUDA's driver: load it, ask what it uses, enqueue it.

Which kernel takes which operands is load.py. The driver is imported by the first call, so that
importing this module, or forking after it, starts no CUDA.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from humming.errors import HummingError, KernelLoadError, LaunchError
from humming.jit.cuda.recording import RECORDER, RecordedLaunch
from humming.spec.device import Device

POINTER, INT, LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
"""C types of kernel arguments."""

_ENTRY_VERSION = 12000
_MOST_CONFIGS = 256  # launch configs that a function keeps: a stream and a grid each


class DeviceFunction:
    """The function `name` of `cubin` in the primary context of GPU `index`, as torch counts.

    Raises KernelLoadError where the driver refuses it.
    """

    def __init__(self, cubin: bytes, name: str, index: int, smem_bytes: int = 0) -> None:
        from cuda.bindings import driver

        self.index = index
        self._driver = driver
        self.smem_bytes = smem_bytes
        self._configs: dict[tuple[object, ...], Any] = {}
        torch.cuda.init()  # type: ignore[no-untyped-call]
        device = _loading(driver.cuDeviceGet(index))
        self._context = _loading(driver.cuDevicePrimaryCtxRetain(device))
        self.context_handle = int(self._context)
        _loading(driver.cuCtxPushCurrent(self._context))
        try:
            self._module = _loading(driver.cuModuleLoadData(cubin))  # kept: it owns the function
            self._function = _loading(driver.cuModuleGetFunction(self._module, name.encode()))
            if smem_bytes:
                dynamic = (
                    driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                )
                _loading(driver.cuFuncSetAttribute(self._function, dynamic, smem_bytes))
            self.handle = int(self._function)
        finally:
            driver.cuCtxPopCurrent()

    def launch(
        self,
        grid: tuple[int, int],
        threads: int,
        values: tuple[object, ...],
        types: tuple[Any, ...],
        cluster: int = 1,
        dependent: bool = False,
    ) -> None:
        """Enqueues the function on torch's current stream of its GPU; never synchronises.

        `cluster` blocks along y share a cluster; a `dependent` launch may begin before the kernel
        before it has ended. Raises LaunchError where the driver refuses.
        """
        if RECORDER.launches is not None:
            RECORDER.launches.append(
                RecordedLaunch(self, grid, threads, values, types, cluster, dependent)
            )
            return
        driver = self._driver
        stream = torch._C._cuda_getCurrentRawStream(self.index)
        key = (grid, threads, cluster, dependent, stream)
        config = self._configs.get(key)
        if config is None:
            config = self._configured(*key)
        foreign = int(driver.cuCtxGetCurrent()[1]) != self.context_handle
        if foreign:  # a thread that torch has not used yet, or another current GPU
            _launching(driver.cuCtxPushCurrent(self._context))
        try:
            _launching(driver.cuLaunchKernelEx(config, self._function, (values, types), 0))
        finally:
            if foreign:
                driver.cuCtxPopCurrent()

    def resources(self) -> dict[str, int]:
        """Registers of a thread, its bytes of local memory (spills), shared memory of a block."""
        names = self._driver.CUfunction_attribute

        def attribute(name: str) -> int:
            key = getattr(names, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(_loading(self._driver.cuFuncGetAttribute(key, self._function)))

        return {
            "registers": attribute("NUM_REGS"),
            "local_bytes": attribute("LOCAL_SIZE_BYTES"),
            "smem_bytes": attribute("SHARED_SIZE_BYTES") + self.smem_bytes,
        }

    def _configured(
        self, grid: tuple[int, int], threads: int, cluster: int, dependent: bool, stream: int
    ) -> Any:
        driver = self._driver
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = self.smem_bytes
        config.hStream = stream
        attributes = _attributes(cluster, dependent)
        config.attrs, config.numAttrs = attributes, len(attributes)
        if len(self._configs) >= _MOST_CONFIGS:
            self._configs = {}
        self._configs[grid, threads, cluster, dependent, stream] = config
        return config


def _attributes(cluster: int, dependent: bool) -> list[Any]:
    """Launch attributes: a cluster along y, and whether the launch may overtake the one before."""
    from cuda.bindings import driver

    ids, attributes = driver.CUlaunchAttributeID, []
    if cluster > 1:
        one = driver.CUlaunchAttribute()
        one.id = ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dim = one.value.clusterDim
        dim.x, dim.y, dim.z = 1, cluster, 1
        attributes.append(one)
    if dependent:
        one = driver.CUlaunchAttribute()
        one.id = ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        one.value.programmaticStreamSerializationAllowed = 1
        attributes.append(one)
    return attributes


def launch_attributes(cluster: int, dependent: bool) -> list[tuple[int, ...]]:
    """The same as the driver's structs: nine words of 8 bytes each."""
    rows = []
    for one in _attributes(cluster, dependent):
        raw = ctypes.string_at(int(one.getPtr()), 72)
        rows.append(tuple(int.from_bytes(raw[at : at + 8], "little") for at in range(0, 72, 8)))
    return rows


def driver_function(symbol: bytes) -> int:
    """The address of a function of CUDA's driver. Raises KernelLoadError where it has none."""
    from cuda.bindings import driver

    error, address, _ = driver.cuGetProcAddress(symbol, _ENTRY_VERSION, 0)
    if int(error) != 0 or not address:
        raise KernelLoadError(f"this NVIDIA driver has no {symbol.decode()}; update it")
    return int(address)


def device_index(device: Device) -> int:
    """The number by which torch and CUDA call `device` in this process.

    Raises KernelLoadError where this process does not see it.
    """
    try:
        from cuda.bindings import driver

        _loading(driver.cuInit(0))
    except ImportError as error:
        raise KernelLoadError("cuda-python is missing; pip install humming-tune[cu13]") from error
    except (RuntimeError, OSError) as error:  # the binding finds no driver to bind to
        raise KernelLoadError("this machine has no NVIDIA driver; use --device cpu") from error
    for index in range(int(_loading(driver.cuDeviceGetCount()))):
        raw = _loading(driver.cuDeviceGetUuid(_loading(driver.cuDeviceGet(index)))).bytes.hex()
        if device.uuid is None or device.uuid.removeprefix("GPU-").replace("-", "") == raw:
            return index
    raise KernelLoadError(f"GPU '{device.name}' ({device.uuid}) is not one that CUDA sees here")


def _loading(result: tuple[Any, ...]) -> Any:
    return _value(result, KernelLoadError)


def _launching(result: tuple[Any, ...]) -> Any:
    return _value(result, LaunchError)


def _value(result: tuple[Any, ...], error: type[HummingError]) -> Any:
    """What a driver call returned beside CUDA_SUCCESS, or its error as an exception."""
    if int(result[0]) != 0:
        raise error(f"CUDA's driver said {getattr(result[0], 'name', result[0])}")
    return result[1] if len(result) > 1 else None
