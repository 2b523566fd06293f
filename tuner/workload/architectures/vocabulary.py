"""The words in which an architecture is written down: widths, linear layers, patterns of layers. No
model stands here.

A width is a formula over named sizes ("num_attention_heads * head_dim"); how a name is found in a
config is sizes.py. A condition is the name of a size or switch that must be set ("q_lora_rank"), a
name and its value ("gating=per-head"), or "!" and one that must not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Share = Literal["whole", "split", "heads", "kv_heads"]
Kind = Literal["dense", "moe", "router", "plain"]


@dataclass(frozen=True)
class Width:
    """A formula and how ranks share it.

    "whole": every rank holds all of it. "split": an equal part each. "heads": so too, and the
    formula's first name, a number of heads, must divide. "kv_heads": heads that are replicated
    where ranks outnumber them.
    """

    formula: str
    share: Share = "whole"


@dataclass(frozen=True)
class Part:
    """One linear layer as a checkpoint names it inside its layer; `{expert}` stands for a
    number.
    """

    module: str
    out: Width
    when: tuple[str, ...] = ()


@dataclass(frozen=True)
class Linear:
    """One layer as engines run it: `parts` stacked along n, under the name `name`.

    Kinds: "dense"; "moe", one weight for each expert; "router", which nobody quantizes; "plain",
    which no checkpoint quantizes, but --format does. It stands where all of `when` hold.
    """

    name: str
    parts: tuple[Part, ...]
    k: Width
    kind: Kind = "dense"
    when: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """`key` lists a word, number or letter for each layer, which `blocks` translates; without the
    key, `other`.
    """

    key: str
    blocks: Mapping[str, Pattern]
    other: Pattern = ""


@dataclass(frozen=True)
class Members:
    """The layers whose numbers `key` lists (counted from `base`) are `inside`; a bare number lists
    itself.
    """

    key: str
    inside: Pattern
    outside: Pattern
    base: int = 0


@dataclass(frozen=True)
class Every:
    """Every n-th layer is `nth` (number + `offset` divisible), others `rest`; n stands under `key`,
    which may also list a flag for each layer.
    """

    key: str
    default: int
    nth: Pattern
    rest: Pattern
    offset: int = 1


@dataclass(frozen=True)
class Leading:
    """As many layers as `key` says are `first`, the others `then`."""

    key: str
    first: Pattern
    then: Pattern
    default: int = 0


@dataclass(frozen=True)
class Trailing:
    """As many layers at the end as `key` says are `last`, the others `before`."""

    key: str
    last: Pattern
    before: Pattern


@dataclass(frozen=True)
class If:
    """`then` where the condition holds, else `otherwise`."""

    condition: str
    then: Pattern
    otherwise: Pattern


Pattern = str | Listed | Members | Every | Leading | Trailing | If
"""Which block stands in a layer: a block's name ("" for none) or a rule that finds it."""


Keys = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Architecture:
    """One entry of the table.

    `model_types` are values of `model_type`, `classes` what class names under `architectures` begin
    with. Each layer of the model is made of one block for each of `patterns`, in this order; `once`
    stands outside the layers. `keys` says under which keys a size is found where that is not usual
    (see sizes.USUAL_KEYS); `defaults` what the public model class takes for a size that is absent
    (a
    number or a formula), `switches` likewise, unsaid. `renamed` are other words for steps of module
    names. `container` is where a checkpoint keeps its layers. `unknown` are conditions, each with a
    sentence on what the config then cannot tell. `prepared` may rewrite a config whose layers are
    described one by one.
    """

    model_types: tuple[str, ...]
    classes: tuple[str, ...]
    blocks: Mapping[str, tuple[Linear, ...]]
    patterns: tuple[Pattern, ...]
    once: tuple[Linear, ...] = ()
    keys: Keys = field(default_factory=dict)
    defaults: Mapping[str, int | str] = field(default_factory=dict)
    switches: Mapping[str, int | str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    container: str = "model.layers"
    unknown: tuple[tuple[str, str], ...] = ()
    prepared: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    @property
    def linears(self) -> tuple[Linear, ...]:
        """All linear layers that the model may have."""
        return (*(linear for block in self.blocks.values() for linear in block), *self.once)
