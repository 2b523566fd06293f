"""A quantizer for transformers: `from_pretrained` of a quantized checkpoint gives a model that
serves through our kernels. What stands where in a model is attach.py.

transformers is imported when `register` is called. Written for its versions 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.attach import Place, fill, places
from humming.checkpoints.folder import Checkpoint
from humming.checkpoints.registry import readers
from humming.errors import CheckpointError, UsageError
from humming.linear import HummingLinear
from humming.state import ACTIVATIONS


def register(methods: Iterable[str] | None = None) -> tuple[str, ...]:
    """From now on transformers loads checkpoints of `methods` ("gptq", "awq", "fp8", "mxfp4",
    "compressed-tensors", ..; None: all that have a reader) into HummingLinear layers.

    Returns the methods. Raises UsageError without transformers, or for a method without a reader.
    """
    if isinstance(methods, str):
        raise UsageError(
            f"methods takes a list of names, but got the string '{methods}'; use ['{methods}']"
        )
    known = sorted({method for reader in readers() for method in reader.methods})
    wanted = tuple(known if methods is None else methods)
    unknown = [method for method in wanted if method not in known]
    if unknown:
        raise UsageError(
            f"methods must be some of {', '.join(known)}, but got {', '.join(unknown)}"
        )
    config, quantizer = _classes()
    auto = _auto()
    for method in wanted:
        for spelling in {method, method.replace("-", "_"), *_SPELLINGS.get(method, ())}:
            auto.AUTO_QUANTIZATION_CONFIG_MAPPING[spelling] = config
            auto.AUTO_QUANTIZER_MAPPING[spelling] = quantizer
    return wanted


_SPELLINGS = {"bitsandbytes": ("bitsandbytes_4bit", "bitsandbytes_8bit")}


class AwaitedLinear(HummingLinear):
    """A HummingLinear whose weight is not there yet: transformers is told of no tensors."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        pass


class AwaitedExperts(nn.Module):
    """Where experts belong that are not there yet."""


def await_layers(model: nn.Module, checkpoint: Checkpoint, dtype: torch.dtype) -> list[Place]:
    """Puts an AwaitedLinear where a quantized layer of `checkpoint` belongs; where they are."""
    headers = Checkpoint(checkpoint.path, headers_only=True)
    found = places(model, checkpoint)
    for place in found:
        if place.experts:
            place.owner._modules[place.attribute] = AwaitedExperts()
            continue
        layer = headers.layer(place.stored)
        n, k = layer.shape
        bias = layer.bias is not None
        format = layer.quantized_weight().format
        waiting = AwaitedLinear(k, n, bias, format, device="meta", dtype=dtype)
        place.owner._modules[place.attribute] = waiting
    return found


def fill_layers(
    found: Iterable[Place], checkpoint: Checkpoint, dtype: torch.dtype, fallback: torch.device
) -> None:
    """Fills what `await_layers` put there, one after the other, each on the device that it was
    moved to."""
    for place in found:
        layer = place.module
        held = (*layer.buffers(), *place.owner.parameters())
        device = next((t.device for t in held if not t.is_meta), fallback)
        if place.experts:
            place.owner._modules[place.attribute] = place.read(checkpoint, device, dtype)
        else:
            fill(place, checkpoint, device, dtype)
            layer.__class__ = HummingLinear


def _auto() -> Any:
    try:
        from transformers.quantizers import auto
    except ImportError as error:
        raise UsageError(
            "humming.huggingface needs transformers; install it with `pip install transformers`"
        ) from error
    return auto


class _KeptConfig:
    """A checkpoint's quantization config, kept as it is: our readers read the file."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    @classmethod
    def from_dict(
        cls, config_dict: Mapping[str, Any], return_unused_kwargs: bool = False, **kwargs: Any
    ) -> Any:
        made = cls(**config_dict)
        return (made, kwargs) if return_unused_kwargs else made

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def get_loading_attributes(self) -> dict[str, Any]:
        return {}


class _FillingQuantizer:
    """Leaves places in a model before transformers loads it, and fills them afterwards."""

    requires_calibration = True

    def _process_model_before_weight_loading(
        self,
        model: Any,
        checkpoint_files: list[str] | None = None,
        **_: Any,
    ) -> None:
        if not checkpoint_files or not str(checkpoint_files[0]).endswith(".safetensors"):
            raise CheckpointError(
                "a quantized checkpoint must be of safetensors files, but got "
                f"{checkpoint_files[0] if checkpoint_files else 'none'}; convert it first"
            )
        self._checkpoint = Checkpoint(Path(checkpoint_files[0]).parent)
        own = model.dtype  # what the user asked for: it is no argument of this method
        self._dtype = own if own in ACTIVATIONS else self._checkpoint.dtype
        self._places = await_layers(model, self._checkpoint, self._dtype)
        known = [f"^{re.escape(place.stem)}" for place in self._places]
        old: Iterable[str] = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
        model._keys_to_ignore_on_load_unexpected = {*old, *known}

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        fill_layers(self._places, self._checkpoint, self._dtype, model.device)
        del self._places, self._checkpoint  # open files, which no copy of the model can have
        return model

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        return True


@lru_cache(maxsize=1)
def _classes() -> tuple[type, type]:
    """The classes by which transformers knows us, derived from its own; pickle finds them by these
    names."""
    _auto()
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    return (
        type("HummingConfig", (_KeptConfig, QuantizationConfigMixin), {"__module__": __name__}),
        type("HummingQuantizer", (_FillingQuantizer, HfQuantizer), {"__module__": __name__}),
    )


def __getattr__(name: str) -> Any:
    """The classes that are made with transformers at hand, for pickle."""
    if name in ("HummingConfig", "HummingQuantizer"):
        return _classes()[name == "HummingQuantizer"]
    raise AttributeError(f"module 'humming.huggingface' has no attribute '{name}'")
