"""How a model was made, as it says itself: entries of its metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from ...costmodels.device import Device
from ...rules.vocabulary import Precision
from .model import Model

PRECISION_KEY = "eqfuse.precision"
RULES_KEY = "eqfuse.rules"
TRUSTED_KEY = "eqfuse.trusted-rules"
"""On the model: the rule files that were used without a check, by name."""
DEVICE_KEY = "eqfuse.device"
"""On the model: the device that prices were for, and the digest of its figures."""
METHOD_KEY = "eqfuse.partition"
"""On the model: how it was partitioned."""
GROUP_KEY = "eqfuse.group"
"""On nodes: the number of the group, groups numbered in an order in which they can run."""

_LOOSENESS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Provenance:
    """A result of eqfuse: the precision it was made with, how many rules matched in the making, and the device that
    prices were for, with the digest of its figures ("" where the model does not say); `trusted` are the rule files that
    were used without a check, by name."""

    precision: Precision
    rules: int
    device: str = ""
    trusted: tuple[str, ...] = ()

    def __str__(self) -> str:
        rules = f"{self.rules} {'rule' if self.rules == 1 else 'rules'} matched"
        prices = f", prices of {self.device}" if self.device else ""
        trusted = f", rules of {' and '.join(self.trusted)} used unchecked" if self.trusted else ""
        return f"made with --precision {self.precision}, {rules}{prices}{trusted}"


def provenance(metadata: Mapping[str, str]) -> Provenance | None:
    """What the metadata of a model say; None where eqfuse did not write them."""
    precision = next((p for p in _LOOSENESS if p == metadata.get(PRECISION_KEY)), None)
    rules = metadata.get(RULES_KEY, "")
    if precision is None or not rules.isdecimal():
        return None
    trusted = tuple(name for name in metadata.get(TRUSTED_KEY, "").split("\n") if name)
    return Provenance(precision, int(rules), metadata.get(DEVICE_KEY, ""), trusted)


def stamp(
    metadata: dict[str, str], precision: Precision, rules: int, device: Device, trusted: Iterable[str] = ()
) -> None:
    """Record how a model was made. A result of a result is of the looser precision, and of all unchecked rules."""
    earlier = provenance(metadata)
    loosest = max(precision, earlier.precision if earlier else precision, key=_LOOSENESS.index)
    metadata[PRECISION_KEY], metadata[RULES_KEY] = loosest, str(rules)
    metadata[DEVICE_KEY] = f"{device.name} {device.digest}"
    unchecked = dict.fromkeys((*(earlier.trusted if earlier else ()), *trusted))
    if unchecked:
        metadata[TRUSTED_KEY] = "\n".join(unchecked)


def forget_partition(model: Model) -> None:
    """Remove what says how a model was partitioned, as it must be where the nodes have changed since."""
    model.ir.metadata_props.pop(METHOD_KEY, None)
    for node in model.graph:
        node.metadata_props.pop(GROUP_KEY, None)
