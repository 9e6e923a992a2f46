"""What the manifest of a bundle says of its program for an accelerator: its field `dsa`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ....costmodels.dsa_device import DsaDevice
from ....support.json_types import JsonFieldError, convert_json
from ...base.errors import BundleError
from ..schedule.clusters import Allocation

_BATCH = "batch"
"""Follows from the allocation, and stands in the manifest for its readers."""


@dataclass(frozen=True)
class Wire:
    """A buffer of the program and the input or output of the model that it holds.

    Its samples lie along `axis`; None if the value is the same for all samples. `order` are the axes as they lie
    in memory, the outermost first.
    """

    buffer: str
    port: str
    axis: int | None
    order: tuple[int, ...]


@dataclass(frozen=True)
class ClusterSection:
    """The program of a cluster: its samples, and what its buffers hold."""

    samples: int
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]


@dataclass(frozen=True)
class Section:
    """The field `dsa`.

    `numbers` has, for each round of the allocation, the number of each cluster's program. `floats` is the type in which
    the accelerator stores any float; `order` the one asked for, None for the variant's own; `figures` the time report.
    `opset` is the model's: it gives attributes of operators that the rules do not know their meaning.
    """

    device: DsaDevice
    allocation: Allocation
    programs: tuple[ClusterSection, ...]
    numbers: tuple[tuple[int, ...], ...]
    variant: str
    order: str | None
    floats: str
    figures: Mapping[str, Any]
    opset: int

    @property
    def inputs(self) -> tuple[Wire, ...]:
        """Those of the first program: all have the same ports."""
        return self.programs[0].inputs

    @property
    def outputs(self) -> tuple[Wire, ...]:
        """Those of the first program."""
        return self.programs[0].outputs

    @property
    def whole_batch(self) -> tuple[int, ...]:
        """The numbers of the programs that process the batch, share after share."""
        rounds = zip(self.allocation.rounds, self.numbers, strict=True)
        return tuple(number for each, numbers in rounds for number in numbers * each.times)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the manifest."""
        return {**msgspec.to_builtins(self), _BATCH: self.allocation.batch}


def section_of(data: Mapping[str, Any] | None, label: str) -> Section:
    """The section of which `data` is `as_dict`. Raises BundleError, which names the field, for anything else."""
    if data is None:
        raise BundleError(f"{label}: holds no program for an accelerator")
    try:
        return convert_json({name: value for name, value in data.items() if name != _BATCH}, Section)
    except JsonFieldError as error:
        raise BundleError(f"{label}: field dsa.{error.path}: {error.problem}; compile the model again") from None
