"""kernels.json: what a bundle says of its kernels. Light to import: whoever measures a bundle reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from ..base.errors import BundleError

KERNELS = "kernels.json"
Row = TypeVar("Row")


StepKind = Literal["kernel", "view", "choice", "loops", "fallback", "copy"]


@dataclass(frozen=True)
class KernelFacts:
    """A distinct kernel: its operators, the rule that scheduled it, and how many times a run of the model calls it.

    Of one call: multiply-adds of products and convolutions, floating-point operations in all, and the bytes that it
    reads and writes, each value once. `roofline` are the seconds that the device needs at its peak or, if that is
    longer, to move the bytes; `predicted` those that the partition was chosen by (None: by no prediction); `measured`
    those that it took when it was compiled (None: it was not measured); `template` is what the partition made it by;
    `apart` are the predicted seconds of its operators as kernels by themselves, 0 if it has one.
    """

    symbol: str
    operators: tuple[str, ...]
    rule: str
    calls: int
    multiply_adds: int
    flops: int
    bytes: int
    roofline: float
    predicted: float | None
    measured: float | None = None
    template: str = ""
    apart: float = 0.0


@dataclass(frozen=True)
class StepFacts:
    """A step of a run: a group of the partition, as a kernel, a view, a choice between branches, plain loops or by ONNX
    Runtime; or a copy of a feature map at an end of the model, which no partition has. `operators` are the names of the
    nodes, `symbol` that of a kernel or loop."""

    kind: StepKind
    operators: tuple[str, ...]
    symbol: str


def read_table(folder: Path) -> tuple[KernelFacts, ...]:
    """The kernels of a bundle, whose checksum the manifest has. Raises BundleError if there is no table that fits."""
    return _read(folder, "kernels", KernelFacts)


def read_steps(folder: Path) -> tuple[StepFacts, ...]:
    """The steps of a run of a bundle, in order. Raises BundleError as `read_table` does."""
    return _read(folder, "steps", StepFacts)


def _read(folder: Path, name: str, kind: Callable[..., Row]) -> tuple[Row, ...]:
    path = folder / KERNELS
    if not path.is_file():
        raise BundleError(f"{folder}: does not say what its kernels are (no {KERNELS}); compile the model again")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))[name]
        return tuple(kind(**{**row, "operators": tuple(row["operators"])}) for row in rows)
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{path}: is no table of kernels: {error}") from None
