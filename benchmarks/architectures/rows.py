"""A row of the table of architectures: a model of a library, its configuration and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Library = Literal[
    "timm", "torchvision", "transformers", "own", "cached", "diffusers", "torchaudio",
    "sklearn", "lightgbm", "xgboost", "jax", "keras", "paddle",
]  # fmt: skip
Exporter = Literal["ts", "dynamo", "skl2onnx", "onnxmltools", "jax2onnx", "tf2onnx", "paddle2onnx"]


@dataclass(frozen=True)
class Input:
    """An input of a model: its name, its shape, and its values.

    Values are "normal" numbers, numbers "uniform" in [0, 1], "ones", integers below `high` where `kind` is "integers".
    `free` gives names to the dimensions that are free in exports of free sizes, by axis.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["normal", "uniform", "ones", "integers"] = "normal"
    high: int = 0
    free: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Architecture:
    """`model` is a name of the library: of a model of timm, a function or class of torchvision, a class of
    transformers, diffusers, torchaudio or of `torch_side/modules.py`, an estimator, a network of `tool_side/`.
    `configuration` are its arguments, or those of its configuration. Models of "cached" are decoders of transformers
    that are given the keys and values of earlier tokens."""

    library: Library
    model: str
    configuration: Mapping[str, Any]
    inputs: tuple[Input, ...]

    @property
    def name(self) -> str:
        """The library and the model: a class without its module, and with the part of it that is taken."""
        first, _, rest = self.model.partition(".")
        return f"{self.library}-{rest if rest and first.islower() else self.model.replace('.', '_')}"


@dataclass(frozen=True)
class Form:
    """How an architecture is exported, with free sizes or fixed: "ts" traces TorchScript, "dynamo" is torch.export."""

    exporter: Exporter
    is_free: bool

    @property
    def suffix(self) -> str:
        """The end of a file's name."""
        return f"{self.exporter}.{'free' if self.is_free else 'fixed'}"


@dataclass(frozen=True)
class Request:
    """An export that the torch side is asked for."""

    architecture: Architecture
    form: Form
    path: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)
