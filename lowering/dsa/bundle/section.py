"""What the manifest of a bundle says of its program for an accelerator: its field `dsa`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ....costmodels.dsa_device import ComputeUnit, Dataflow, DsaDevice
from ...errors import BundleError
from ..schedule.clusters import Allocation


@dataclass(frozen=True)
class Wire:
    """A buffer of the program and the input or output of the model that it holds; its samples lie along `axis`.

    None where they do not: the value is the same for all programs. `order` are the axes as they lie in memory.
    """

    buffer: str
    port: str
    axis: int | None
    order: tuple[int, ...]


@dataclass(frozen=True)
class Section:
    """`floats` is the type that any float is stored in; `order` the one asked for; `figures` the time report.

    `opset` is that of the model: it says what attributes of operators mean that the rules do not know.
    """

    device: DsaDevice
    allocation: Allocation
    variant: str
    order: str | None
    floats: str
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]
    figures: Mapping[str, Any]
    opset: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the manifest."""
        content = asdict(self)
        for unit, known in zip(content["device"]["units"], self.device.units, strict=True):
            unit["dataflows"] = [each.value for each in known.dataflows]
        return content | {"batch": self.allocation.batch}


def section_of(data: Mapping[str, Any] | None, label: str) -> Section:
    """What `as_dict` gave. Raises BundleError for anything else."""
    if data is None:
        raise BundleError(f"{label}: holds no program for an accelerator")
    try:
        return Section(
            _device(data["device"]),
            Allocation(**data["allocation"]),
            data["variant"],
            data["order"],
            data["floats"],
            tuple(map(_wire, data["inputs"])),
            tuple(map(_wire, data["outputs"])),
            data["figures"],
            data["opset"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BundleError(f"{label}: field dsa: {type(error).__name__}: {error}; compile the model again") from None


def _wire(data: Mapping[str, Any]) -> Wire:
    return Wire(**{**data, "order": tuple(data["order"])})


def _device(data: Mapping[str, Any]) -> DsaDevice:
    units = (ComputeUnit(**{**each, "dataflows": tuple(map(Dataflow, each["dataflows"]))}) for each in data["units"])
    return DsaDevice(**{**data, "units": tuple(units)})
