"""One table of weight layouts: for which devices, formats and sizes each is made. No tensors here;
what lies where is written in quantize/."""

from __future__ import annotations

from dataclasses import dataclass

from humming.spec.device import Device


@dataclass(frozen=True)
class Layout:
    """A way to pack a layer's weight, the same for every family and m that serves the layer.

    `kind` is the device kind that reads it, `formats` what it holds, `k_multiple` what k must be a
    multiple of, and `scale_dtypes` the types that its scales may have before they are packed.
    """

    name: str
    kind: str
    formats: tuple[str, ...]
    k_multiple: int
    scale_dtypes: tuple[str, ...]


CPU_LAYOUT = "cpu_n16k8"
CUDA_LAYOUT = "cuda_n16k64"

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(CPU_LAYOUT, "cpu", ("int4g128",), 32, ("fp32", "bf16", "fp16")),
        Layout(CUDA_LAYOUT, "cuda", ("int4g128",), 8, ("bf16", "fp16")),
    )
}


def layout_for(device: Device, format: str) -> str:
    """The layout in which `device` reads weights of `format`.

    Where no layout of the device's kind holds the format, the kind's first one: the rules of the
    families then say what runs.
    """
    of_kind = [layout for layout in LAYOUTS.values() if layout.kind == device.kind]
    of_kind = of_kind or [LAYOUTS[CPU_LAYOUT]]
    return next((layout.name for layout in of_kind if format in layout.formats), of_kind[0].name)
