"""The partition of a model as ``eqfuse inspect`` shows it: recorded in the model, made, or given by a certificate."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..costmodels.device import Device
from ..engine.onnx.inference import Knowledge
from ..engine.onnx.model import Model
from ..engine.onnx.provenance import METHOD_KEY
from ..errors import UsageError
from ..extract.partition.annotate import read_partition
from ..extract.partition.certificate.format import Certificate, CertificateError, certificate_of, check
from ..extract.partition.groups import Partition, PartitionError, unfused
from ..extract.partition.intermediate import intermediate_bytes, removed
from ..extract.partition.kernels import KernelModel
from ..extract.partition.operator_graph import operator_graph
from ..ir.graph import OperatorGraph
from . import render
from .terminal import write

_LARGEST = 10
"""Groups in the table."""
_NAMED_OPERATORS = 4


@dataclass(frozen=True)
class Figures:
    """A partition in figures: its groups, the kernels they become, the values that leave a group and the bytes of
    those and of the outputs of the graph, and the seconds that a device is predicted to take."""

    groups: int
    kernels: int
    intermediate_values: int
    intermediate_bytes: int
    predicted_seconds: float


@dataclass(frozen=True)
class Group:
    """One group; `operators` are the names of its nodes, `types` what they are."""

    number: int
    operators: tuple[str, ...]
    types: tuple[str, ...]
    kernels: int
    predicted_seconds: float


@dataclass(frozen=True)
class Inspection:
    """A partition beside each operator by itself. `checked_by`: who checked its certificate; None where nobody did."""

    method: str
    unfused: Figures
    partitioned: Figures
    groups: tuple[Group, ...]
    checked_by: str | None

    @property
    def removed_values(self) -> int:
        """Intermediate values that no longer leave a group."""
        return self.unfused.intermediate_values - self.partitioned.intermediate_values

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "removed_values": self.removed_values}


def inspection(model: Model, knowledge: Knowledge, device: Device, arguments: argparse.Namespace) -> Inspection | None:
    """The partition that the options ask for, else the one that the model records; None where there is none.

    Raises UsageError where one is to be certified and there is none, and PartitionError where one is wrong.
    """
    asked = arguments.partition is not None or arguments.certificate is not None
    if not asked and METHOD_KEY not in model.ir.metadata_props:
        if arguments.certify:
            raise UsageError(f"--certify: {model.label} records no partition; --partition METHOD makes one")
        return None
    graph = operator_graph(model, knowledge)
    prices = KernelModel(graph, device)
    partition = _partition(model, graph, prices, arguments)
    checked_by = "its order" if arguments.certificate is not None else None
    if arguments.certify:
        from ..extract.partition.certificate.proof import certify

        certify(graph, certificate_of(partition))
        checked_by = "z3"
    return _measured(partition, prices, checked_by)


def _partition(model: Model, graph: OperatorGraph, prices: KernelModel, arguments: argparse.Namespace) -> Partition:
    if arguments.partition is not None:
        from ..extract.partition.search.methods import partition_by

        return partition_by(arguments.partition, graph, prices, arguments.time_limit)
    recorded = read_partition(model, graph)
    if arguments.certificate is not None:
        return _certified(arguments.certificate, graph, recorded)
    assert recorded is not None, "looked for by the caller"
    return recorded


def _certified(path: Path, graph: OperatorGraph, recorded: Partition | None) -> Partition:
    """The partition that a certificate proves. Raises PartitionError where the model records another one."""
    try:
        proven = check(graph, Certificate.from_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, PartitionError) as error:
        raise CertificateError(f"{path}: {error}") from None
    groups = set(proven.members if recorded is None else recorded.members)
    for number, members in enumerate(proven.members):
        if members not in groups:
            first = graph.operators[members[0]].name
            raise CertificateError(f"{path}: group {number}, of operator {first!r}, is none that the model records")
    return proven


def _measured(partition: Partition, prices: KernelModel, checked_by: str | None) -> Inspection:
    return Inspection(
        partition.method,
        _figures(unfused(partition.graph), prices),
        _figures(partition, prices),
        tuple(_group(partition, number, prices) for number in range(partition.count)),
        checked_by,
    )


def _figures(partition: Partition, prices: KernelModel) -> Figures:
    intermediate = sum(v.producer is not None and not v.is_output for v in partition.graph.values)
    return Figures(
        groups=partition.count,
        kernels=sum(len(prices.kernels(members)) for members in partition.members),
        intermediate_values=intermediate - len(removed(partition)),
        intermediate_bytes=intermediate_bytes(partition),
        predicted_seconds=prices.partition(partition),
    )


def _group(partition: Partition, number: int, prices: KernelModel) -> Group:
    members = partition.members[number]
    operators = [partition.graph.operators[member] for member in members]
    return Group(
        number,
        tuple(operator.name for operator in operators),
        tuple(operator.op for operator in operators),
        len(prices.kernels(members)),
        prices.group(members),
    )


def print_inspection(path: Path, found: Inspection) -> None:
    """Tables of the partition and of its largest groups, and a line on its certificate."""
    render.table(f"partition of {path}: {found.method}", ("", "unfused", "partition", "change"), _rows(found))
    largest = sorted(found.groups, key=lambda group: (-len(group.operators), group.number))[:_LARGEST]
    rows: list[tuple[str, ...]] = [
        (
            str(group.number),
            _types(group.types),
            str(len(group.operators)),
            str(group.kernels),
            render.seconds(group.predicted_seconds),
        )
        for group in largest
    ]
    title = f"largest groups ({len(largest)} of {len(found.groups)})"
    render.table(title, ("group", "", "operators", "kernels", "predicted"), rows, left=2)
    if found.checked_by is not None:
        write(f"certificate: {len(found.groups)} groups, checked by {found.checked_by}")


def _rows(found: Inspection) -> list[tuple[str, ...]]:
    before, after = found.unfused, found.partitioned
    size = [render.figure(f.intermediate_bytes, "B") for f in (before, after)]
    latency = [render.seconds(f.predicted_seconds) for f in (before, after)]
    return [
        _row("groups", before.groups, after.groups),
        _row("kernels", before.kernels, after.kernels),
        _row("intermediate values", before.intermediate_values, after.intermediate_values),
        ("intermediate bytes", *size, render.change(before.intermediate_bytes, after.intermediate_bytes)),
        ("predicted latency", *latency, render.change(before.predicted_seconds, after.predicted_seconds)),
    ]


def _row(name: str, before: int, after: int) -> tuple[str, ...]:
    return name, str(before), str(after), render.change(before, after)


def _types(types: tuple[str, ...]) -> str:
    """``Conv, Relu, Concat``, of many the first few."""
    more = len(types) - _NAMED_OPERATORS
    return ", ".join(types[:_NAMED_OPERATORS]) + (f" and {more} more" if more > 0 else "")
