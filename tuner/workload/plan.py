"""The plan: a config and a tensor-parallel size -> the layers that one rank runs, as a Workload. No
kernels, no timing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from humming.checkpoints.config.config_file import read_config
from humming.checkpoints.config.text_config import text_config
from humming.errors import ModelError
from humming.spec.formats import QuantFormat
from tuner.workload.architectures import Linear, Part
from tuner.workload.fit import Built, fit_warnings, unfused_warnings
from tuner.workload.layer_kinds import blocks_of
from tuner.workload.layers import Layer, Workload, merge
from tuner.workload.naming import module_names
from tuner.workload.quantization import Quantization, Scheme, read_quantization
from tuner.workload.recognize import find_architecture
from tuner.workload.sizes import ModelSizes, first_name, read_dtype


def read_workload(
    path: str | Path, tp: int = 1, format: str | None = None, unfused: bool = False
) -> Workload:
    """What one of `tp` ranks runs of the model at `path` (a config.json or its folder).

    With `format`, the linear layers that the checkpoint leaves unquantized become problems in it,
    routers and lm_head excepted. Dense layers are fused as serving engines fuse them; `unfused` are
    those of the model's own modules, q, k and v apart, as `humming.convert` makes them.

    Raises ModelError for a config that cannot be planned, FormatError for an unknown `format`.
    """
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        raise ModelError(f"`tp >= 1` must hold, but got tp={tp}; use a positive --tp")
    override = str(QuantFormat.parse(format)) if format is not None else None
    file = read_config(path)
    text = text_config(file)
    architecture = find_architecture(text)
    if architecture.prepared is not None:
        text = text.with_values(architecture.prepared(text.values))
    sizes = ModelSizes(text, architecture)
    quantization, notes = read_quantization(file, text, override)
    planner = _Planner(sizes, quantization, tp, read_dtype(text), override, unfused)
    built = planner.built()
    layers = [layer for layer, _ in built]
    return Workload(
        model=file.model,
        tp=tp,
        dtype=planner.dtype,
        problems=merge(layer for layer in layers if layer.quantized),
        unquantized=merge(layer for layer in layers if not layer.quantized),
        warnings=(*sizes.notes(), *notes, *planner.warnings(built)),
    )


@dataclass(frozen=True)
class _Planner:
    """Walks the model's layers once; holds what stays the same on the way. `override` is the user's
    --format.
    """

    sizes: ModelSizes
    quantization: Quantization | None
    tp: int
    dtype: str
    override: str | None
    unfused: bool

    def built(self) -> list[Built]:
        """One Layer per distinct (fused layer, format), counted, in order of first appearance, with
        its parts' widths.
        """
        counts: dict[Built, int] = {}
        for layer, linear in self._linears():
            if all(self.sizes.holds(condition, layer) for condition in linear.when):
                for built in self._fused(linear, layer):
                    counts[built] = counts.get(built, 0) + 1
        return [(replace(layer, count=n), widths) for (layer, widths), n in counts.items()]

    def warnings(self, built: list[Built]) -> list[str]:
        """Sentences on fused layers that must be taken apart, and on shapes that no group or block
        fits evenly.
        """
        fused = {linear.name for linear in self.sizes.architecture.linears}
        unmeant = []
        if self.quantization is not None and not self._means_any(built):
            unmeant = [
                f"{self.sizes.config.name}: its quantization means none of this model's layers"
            ]
        apart = [] if self.unfused else unfused_warnings(built, fused)
        return [*unmeant, *apart, *fit_warnings(built, self.tp)]

    def _means_any(self, built: list[Built]) -> bool:
        return self.override is not None or any(layer.quantized for layer, _ in built)

    def _linears(self) -> Iterator[tuple[int | None, Linear]]:
        architecture = self.sizes.architecture
        for layer in range(self.sizes.layers()):
            for block in blocks_of(self.sizes, layer):
                for linear in architecture.blocks[block]:
                    yield layer, linear
        for linear in architecture.once:
            yield None, linear

    def _fused(self, linear: Linear, layer: int | None) -> list[Built]:
        """`linear` in layer `layer`; in parts where they were asked for, or where the checkpoint
        does not store all of them alike. A module of experts is one whatever is asked for.
        """
        parts = [
            part
            for part in linear.parts
            if all(self.sizes.holds(condition, layer) for condition in part.when)
        ]
        self._check_heads(parts, layer)
        schemes = [self._scheme(linear, part, layer) for part in parts]
        one = linear.kind == "moe" or not self.unfused
        if len(set(schemes)) == 1 and one:
            return [self._layer(linear.name, parts, linear, schemes[0], layer)]
        apart: dict[str, list[Part]] = {}
        stored = {}
        for part, scheme in zip(parts, schemes, strict=True):
            apart.setdefault(part.module, []).append(part)
            stored[part.module] = scheme
        return [
            self._layer(
                module.replace(".{expert}", ""), apart[module], linear, stored[module], layer
            )
            for module in apart
        ]

    def _check_heads(self, parts: list[Part], layer: int | None) -> None:
        shares = {part.out.share: first_name(part.out) for part in reversed(parts)}
        if "heads" in shares and "kv_heads" in shares:
            self.sizes.check_groups(shares["heads"], shares["kv_heads"], layer)

    def _scheme(self, linear: Linear, part: Part, layer: int | None) -> Scheme | None:
        if self.quantization is None or linear.kind in ("router", "plain"):
            return None
        names = module_names(self.sizes.architecture, linear, part, layer)
        return self.quantization.scheme(names)

    def _layer(
        self,
        name: str,
        parts: list[Part],
        linear: Linear,
        scheme: Scheme | None,
        layer: int | None,
    ) -> Built:
        widths = tuple(self.sizes.per_rank(part.out, self.tp, layer) for part in parts)
        moe = linear.kind == "moe"
        override = None if linear.kind == "router" else self.override
        format = scheme.format if scheme else override
        built = Layer(
            name=name,
            op="moe" if moe else "dense",
            n=self.sizes.bounded(sum(widths), name),
            k=self.sizes.per_rank(linear.k, self.tp, layer),
            count=1,
            experts=self.sizes.size("num_experts", layer) if moe else None,
            top_k=self.sizes.top_k(layer) if moe else None,
            format=format or self.dtype,
            quantized=format is not None,
            act_order=scheme is not None and scheme.act_order,
        )
        return built, widths
