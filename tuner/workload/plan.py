"""The plan: a config and a tensor-parallel size -> the layers that one rank runs, as a Workload. No
kernels, no timing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from humming.errors import ModelError
from humming.spec.formats import QuantFormat
from tuner.workload.architectures import Architecture, Linear, Part
from tuner.workload.config_file import read_config
from tuner.workload.fit import Built, fit_warnings, unfused_warnings
from tuner.workload.layers import Layer, Workload, merge
from tuner.workload.quantization import Quantization, Scheme, read_quantization
from tuner.workload.recognize import find_architecture
from tuner.workload.sizes import ModelSizes, read_dtype, read_sizes


def read_workload(path: str | Path, tp: int = 1, format: str | None = None) -> Workload:
    """What one of `tp` ranks runs of the model at `path` (a config.json or its folder).

    With `format`, the linear layers that the checkpoint leaves unquantized become problems in it,
    routers and lm_head excepted. Raises ModelError for a config that cannot be planned, FormatError
    for an unknown `format`.
    """
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        raise ModelError(f"`tp >= 1` must hold, but got tp={tp}; use a positive --tp")
    override = str(QuantFormat.parse(format)) if format is not None else None
    config = read_config(path)
    architecture = find_architecture(config)
    sizes = read_sizes(config, architecture)
    quantization, notes = read_quantization(config, override)
    planner = _Planner(architecture, sizes, quantization, tp, read_dtype(config), override)
    built = planner.built()
    layers = [layer for layer, _ in built]
    return Workload(
        model=config.model,
        tp=tp,
        dtype=planner.dtype,
        problems=merge(layer for layer in layers if layer.quantized),
        unquantized=merge(layer for layer in layers if not layer.quantized),
        warnings=(*sizes.assumed, *notes, *planner.warnings(built)),
    )


@dataclass(frozen=True)
class _Planner:
    """Walks the model's layers once; holds what stays the same on the way. `override` is the user's
    --format.
    """

    architecture: Architecture
    sizes: ModelSizes
    quantization: Quantization | None
    tp: int
    dtype: str
    override: str | None

    def built(self) -> list[Built]:
        """One Layer per distinct (fused layer, format), counted, in order of first appearance, with
        its parts' widths.
        """
        counts: dict[Built, int] = {}
        for index in range(self.sizes.require("num_hidden_layers")):
            sparse = self.sizes.has_experts(self.architecture.sparse, index)
            for linear in self.architecture.linears:
                if linear.where in ("every", "sparse" if sparse else "dense"):
                    for built in self._fused(linear, index):
                        counts[built] = counts.get(built, 0) + 1
        return [(replace(layer, count=n), widths) for (layer, widths), n in counts.items()]

    def warnings(self, built: list[Built]) -> list[str]:
        """Sentences on fused layers that must be taken apart, and on shapes that no group or block
        fits evenly.
        """
        fused = {linear.name for linear in self.architecture.linears}
        return [*unfused_warnings(built, fused), *fit_warnings(built, self.tp)]

    def _fused(self, linear: Linear, index: int) -> list[Built]:
        """`linear` in layer `index`; in parts where the checkpoint does not store all of them
        alike.
        """
        schemes = [self._scheme(linear, part, index) for part in linear.parts]
        if len(set(schemes)) == 1:
            return [self._layer(linear.name, linear.parts, linear, schemes[0])]
        return [
            self._layer(part.module.replace(".{expert}", ""), (part,), linear, scheme)
            for part, scheme in zip(linear.parts, schemes, strict=True)
        ]

    def _scheme(self, linear: Linear, part: Part, index: int) -> Scheme | None:
        if self.quantization is None or linear.kind == "router":
            return None
        return self.quantization.scheme(self._names(linear, part, index))

    def _names(self, linear: Linear, part: Part, index: int) -> list[str]:
        """What checkpoints and engines call `part`: its own name, the fused layer's, and for
        experts their block's.
        """
        names = {part.module.replace("{expert}", "0"), linear.name, part.module.split(".{")[0]}
        return [
            f"{prefix}.{index}.{name}" for prefix in self.architecture.prefixes for name in names
        ]

    def _layer(
        self, name: str, parts: tuple[Part, ...], linear: Linear, scheme: Scheme | None
    ) -> Built:
        widths = tuple(self.sizes.per_rank(part.out, self.tp) for part in parts)
        moe = linear.kind == "moe"
        override = None if linear.kind == "router" else self.override
        format = scheme.format if scheme else override
        layer = Layer(
            name=name,
            op="moe" if moe else "dense",
            n=self.sizes.bounded(sum(widths), name),
            k=self.sizes.per_rank(linear.k, self.tp),
            count=1,
            experts=self.sizes.require("num_experts") if moe else None,
            top_k=self.sizes.top_k() if moe else None,
            format=format or self.dtype,
            quantized=format is not None,
            act_order=scheme is not None and scheme.act_order,
        )
        return layer, widths
