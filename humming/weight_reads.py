"""Which layers have a float weight that code of their model reads, so that they must keep it: found
in the source of the model's classes, which is read and not run. Replacing the others is convert.py.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from torch import nn

KNOWN: tuple[tuple[type[nn.Module], tuple[str, ...]], ...] = (
    (nn.TransformerEncoderLayer, ("linear1", "linear2", "self_attn.out_proj")),
    (nn.MultiheadAttention, ("out_proj",)),
)
"""Modules that hand weights to a fused kernel, and which, also where their source is not there."""

_BUILDING = ("__init__", "init", "reset", "resize", "tie", "set_", "load", "save", "extra_repr")
"""How functions begin that no call of a model comes to, underscores aside."""
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_PLAIN = (bool, int, float, str, type(None))
_UNKNOWN = object()


def read_layers(model: nn.Module) -> dict[int, str]:
    """Ids of modules of `model` whose `weight` a method of another one reads, such as
    `self.wo.weight`, and the class of that.

    What building a model alone runs does not count, nor what a condition on the module's own
    settings rules out, such as `if self.training`: there is no backward.
    """
    found: dict[int, str] = {}
    for module in model.modules():
        kind: Any = type(module)
        known = [path for of, paths in KNOWN if isinstance(module, of) for path in paths]
        read = (path for tree in _trees(kind) for path in _reads(tree, module))
        for path in (*known, *read):
            layer = _at(module, path)
            if layer is not None:
                found.setdefault(id(layer), type(module).__name__)
    return found


def _at(module: nn.Module, path: str) -> nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


@lru_cache(maxsize=1024)
def _trees(of: Any) -> tuple[ast.AST, ...]:
    """The methods of a class, its own and those that it has from others, which read a weight."""
    found: list[ast.AST] = []
    seen: set[str] = set()
    for base in of.__mro__:
        if base in (nn.Module, object):
            continue
        for name, given in vars(base).items():
            if name in seen or name.lstrip("_").startswith(_BUILDING) or name == "__init__":
                continue
            seen.add(name)
            function: Any = given.fget if isinstance(given, property) else given
            function = inspect.unwrap(function)
            if isinstance(function, FunctionType) and _mentions(function.__code__):
                found += _parsed(function)
    return tuple(found)


def _mentions(code: CodeType) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return "weight" in code.co_names or any(_mentions(part) for part in inner)


def _parsed(function: FunctionType) -> list[ast.AST]:
    try:
        return [ast.parse(textwrap.dedent(inspect.getsource(function)))]
    except (OSError, TypeError, SyntaxError):
        return []  # no source; a layer whose weight is read then says so by its name


def _reads(node: ast.AST, module: nn.Module) -> Iterator[str]:
    """Paths `a.b` of reads of `self.a.b.weight` that a call of `module` may come to."""
    if isinstance(node, (ast.If, ast.IfExp)):
        yield from _reads(node.test, module)
        told = _value(node.test, module)
        ways = [] if told is not _UNKNOWN and not told else [node.body]
        ways += [node.orelse] if told is _UNKNOWN or not told else []
        for way in ways:
            for part in way if isinstance(way, list) else [way]:
                yield from _reads(part, module)
        return
    if isinstance(node, ast.Attribute) and node.attr == "weight":
        path = _path(node.value)
        if path:
            yield ".".join(path)
    for child in ast.iter_child_nodes(node):
        yield from _reads(child, module)


def _path(node: ast.AST) -> list[str] | None:
    """["a", "0", "b"] of `self.a[0].b`; None of what does not begin with self."""
    if isinstance(node, ast.Name):
        return [] if node.id == "self" else None
    if isinstance(node, ast.Attribute):
        before, name = _path(node.value), node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        before, name = _path(node.value), str(node.slice.value)
    else:
        return None
    return None if before is None else [*before, name]


def _value(node: ast.AST, module: nn.Module) -> Any:
    """What a condition is for `module`, by its settings alone; _UNKNOWN where that is open."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        told = _value(node.operand, module)
        return _UNKNOWN if told is _UNKNOWN else not told
    if isinstance(node, ast.BoolOp):
        decides = isinstance(node.op, ast.Or)
        parts = [_value(part, module) for part in node.values]
        if any(part is not _UNKNOWN and bool(part) is decides for part in parts):
            return decides
        return _UNKNOWN if _UNKNOWN in parts else not decides
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = [_value(side, module) for side in (node.left, node.comparators[0])]
        compared = _COMPARED.get(type(node.ops[0]))
        try:
            return compared(*sides) if compared and _UNKNOWN not in sides else _UNKNOWN
        except TypeError:
            return _UNKNOWN
    return _setting(_path(node), module)


def _setting(path: list[str] | None, module: nn.Module) -> Any:
    """A number, text or flag at `path`, as `self.config.pretraining_tp` is one."""
    if not path:
        return _UNKNOWN
    if path == ["training"]:
        return False
    found: Any = module
    for name in path:
        if isinstance(found, nn.Module):
            found = vars(found).get(name, found._modules.get(name, _UNKNOWN))
        else:
            found = getattr(found, name, _UNKNOWN)
    return found if isinstance(found, _PLAIN) else _UNKNOWN
