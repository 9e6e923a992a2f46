"""Metadata of a model that eqfuse wrote about its making."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from ...rules.vocabulary import Precision

if TYPE_CHECKING:  # the process that verifies reads metadata, and nothing else of onnx-ir
    from ...costmodels.device import Device
    from .model import Model

PRECISION_KEY = "eqfuse.precision"
RULES_KEY = "eqfuse.rules"
TRUSTED_KEY = "eqfuse.trusted-rules"
"""On the model: the names of the rule files that were used unchecked."""
DEVICE_KEY = "eqfuse.device"
"""On the model: the device whose costs decided, and the digest of its figures."""
ACYCLIC_KEY = "eqfuse.acyclic"
"""On the model: why the choice of its graph from the e-graph has no cycle."""
METHOD_KEY = "eqfuse.partition"
"""On the model: the partition method."""
GROUP_KEY = "eqfuse.group"
"""On nodes: the number of the group, groups numbered in an order in which they can run."""

_LOOSENESS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Provenance:
    """The making of a result: its precision, the number of rules that matched, the device whose costs decided with the
    digest of its figures ("" in models without them), and the names of the rule files that were used unchecked."""

    precision: Precision
    rules: int
    device: str = ""
    trusted: tuple[str, ...] = ()

    def __str__(self) -> str:
        rules = f"{self.rules} {'rule' if self.rules == 1 else 'rules'} matched"
        costs = f", costs for {self.device}" if self.device else ""
        trusted = f", rules of {' and '.join(self.trusted)} used unchecked" if self.trusted else ""
        return f"made with --precision {self.precision}, {rules}{costs}{trusted}"


def provenance(metadata: Mapping[str, str]) -> Provenance | None:
    """The provenance in a model's metadata; None if eqfuse did not write it."""
    precision = next((p for p in _LOOSENESS if p == metadata.get(PRECISION_KEY)), None)
    rules = metadata.get(RULES_KEY, "")
    if precision is None or not rules.isdecimal():
        return None
    trusted = tuple(name for name in metadata.get(TRUSTED_KEY, "").split("\n") if name)
    return Provenance(precision, int(rules), metadata.get(DEVICE_KEY, ""), trusted)


def stamp(
    metadata: dict[str, str], precision: Precision, rules: int, device: Device, trusted: Iterable[str] = ()
) -> None:
    """Record how a model was made. A result made from a result has the looser precision, and all unchecked files."""
    earlier = provenance(metadata)
    loosest = max(precision, earlier.precision if earlier else precision, key=_LOOSENESS.index)
    metadata[PRECISION_KEY], metadata[RULES_KEY] = loosest, str(rules)
    metadata[DEVICE_KEY] = f"{device.name} {device.digest}"
    unchecked = dict.fromkeys((*(earlier.trusted if earlier else ()), *trusted))
    if unchecked:
        metadata[TRUSTED_KEY] = "\n".join(unchecked)


def forget_partition(model: Model) -> None:
    """Remove the metadata about a partition, which are wrong once the nodes have changed."""
    model.ir.metadata_props.pop(METHOD_KEY, None)
    for node in model.graph:
        node.metadata_props.pop(GROUP_KEY, None)
