"""Certificates of partitions: the order of the groups that proves their quotient graph acyclic and each group convex.

Written as JSON, groups by the names of their operators::

    {"version": 1, "method": "...", "graph": "<digest>", "groups": [{"order": 0, "operators": ["Conv_12", ...]}, ...]}

A reader needs no solver: every edge between two groups must go up the order (`check`). proof.py has z3 find an order,
whatever the certificate says, and check that each group is convex.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from ....ir.graph import OperatorGraph
from ....support.directed_graphs import find_short_cycle
from ..groups import Partition, PartitionError

VERSION = 1


class CertificateError(PartitionError):
    """A certificate that cannot be read or belongs to another graph; the message starts with the field."""


@dataclass(frozen=True)
class Certificate:
    """A partition by names. `groups` holds the operators of each group (see `operator_names`), `order` the place of
    each group: 0 to ``len(groups) - 1``, each once. `fingerprint` is the digest of the graph that was partitioned.
    """

    method: str
    fingerprint: str
    groups: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]

    def to_json(self) -> str:
        """The certificate as JSON text, a line per group."""
        rows = (
            json.dumps({"order": place, "operators": names})
            for names, place in zip(self.groups, self.order, strict=True)
        )
        head = json.dumps({"version": VERSION, "method": self.method, "graph": self.fingerprint})
        return head.removesuffix("}") + ', "groups": [\n' + ",\n".join(rows) + "\n]}\n"

    @staticmethod
    def from_json(text: str) -> Certificate:
        """Read what `to_json` wrote. Raises CertificateError on any field that is missing, unknown or ill-formed."""
        try:
            document = msgspec.convert(json.loads(text, object_pairs_hook=_refuse_duplicates), _Document)
        except (json.JSONDecodeError, RecursionError) as error:
            raise CertificateError(f"certificate: not JSON: {error}") from error
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            raise CertificateError(f"{path.strip('.`') or 'certificate'}: {problem[0].lower()}{problem[1:]}") from error
        if document.version != VERSION:
            raise CertificateError(f"version: {document.version} cannot be read, only {VERSION}")
        order = tuple(row.order for row in document.groups)
        _require_permutation(order)
        return Certificate(document.method, document.graph, tuple(row.operators for row in document.groups), order)


@dataclass(frozen=True)
class Crossing:
    """A step between groups: `source`, an operator of group `tail`, is read by `target`, an operator of `head`."""

    tail: int
    head: int
    source: int
    target: int


def operator_names(graph: OperatorGraph) -> tuple[str, ...]:
    """A distinct name per operator: its own, with its index before it if any two share one."""
    names = tuple(operator.name for operator in graph.operators)
    if len(set(names)) == len(names):
        return names
    return tuple(f"{index}: {name}" for index, name in enumerate(names))


def fingerprint(graph: OperatorGraph) -> str:
    """SHA-256 (hexadecimal) of the operators, by name and type, and their edges."""
    rows = [
        (name, operator.op, sources)
        for name, operator, sources in zip(operator_names(graph), graph.operators, graph.predecessors, strict=True)
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def certificate_of(partition: Partition) -> Certificate:
    """The certificate of a partition: its groups in the order of their numbers."""
    names = operator_names(partition.graph)
    groups = tuple(tuple(names[member] for member in members) for members in partition.members)
    return Certificate(partition.method, fingerprint(partition.graph), groups, tuple(range(len(groups))))


def check(graph: OperatorGraph, certificate: Certificate) -> Partition:
    """The partition that a certificate proves, its groups numbered in the certificate's order.

    Raises CertificateError if it is not of this graph, and PartitionError if the groups form a cycle (the
    message names it) or an edge goes against the order.
    """
    labels = labels_of(graph, certificate)
    crossings = crossings_of(graph, labels)
    if any(certificate.order[c.tail] >= certificate.order[c.head] for c in crossings):
        raise disproof(graph, certificate, crossings)
    return Partition(graph, tuple(certificate.order[label] for label in labels), certificate.method)


def labels_of(graph: OperatorGraph, certificate: Certificate) -> tuple[int, ...]:
    """Per operator, the position of its group in the certificate. Raises CertificateError."""
    if certificate.fingerprint != fingerprint(graph):
        raise CertificateError("graph: the certificate is of another graph (its digest differs); partition this one")
    index = {name: number for number, name in enumerate(operator_names(graph))}
    labels = [-1] * len(graph)
    for place, names in enumerate(certificate.groups):
        for position, name in enumerate(names):
            field = f"groups[{place}].operators[{position}]"
            if name not in index:
                raise CertificateError(f"{field}: no operator is called {name!r}")
            if labels[index[name]] >= 0:
                raise CertificateError(f"{field}: {name!r} is in groups[{labels[index[name]]}] already")
            labels[index[name]] = place
    missing = [name for name, number in index.items() if labels[number] < 0]
    if missing:
        raise CertificateError(f"groups: operator {missing[0]!r} is in none ({len(missing)} missing in all)")
    return tuple(labels)


def crossings_of(graph: OperatorGraph, labels: Sequence[int]) -> tuple[Crossing, ...]:
    """The edges of the quotient graph, each with the first edge of the graph that makes it."""
    crossings: dict[tuple[int, int], Crossing] = {}
    for target, sources in enumerate(graph.predecessors):
        for source in sources:
            pair = labels[source], labels[target]
            if pair[0] != pair[1] and pair not in crossings:
                crossings[pair] = Crossing(*pair, source, target)
    return tuple(crossings.values())


def cycle_error(graph: OperatorGraph, steps: Sequence[Crossing]) -> PartitionError:
    """The error of groups that form a cycle, by the crossings along it."""
    names = operator_names(graph)
    path = " -> ".join(f"g{step.tail} ({names[step.source]})" for step in steps)
    return PartitionError(f"the groups form a cycle: {path} -> g{steps[0].tail}")


def disproof(graph: OperatorGraph, certificate: Certificate, crossings: Sequence[Crossing]) -> PartitionError:
    """The error of a wrong certificate: a short cycle of the crossings, or one of them that goes down the order."""
    cycle = find_short_cycle([(crossing.tail, crossing.head) for crossing in crossings])
    if cycle:
        return cycle_error(graph, [crossings[position] for position in cycle])
    order, names = certificate.order, operator_names(graph)
    wrong = next(c for c in crossings if order[c.tail] >= order[c.head])
    return PartitionError(
        f"groups[{wrong.tail}].order: {order[wrong.tail]} is not before {order[wrong.head]}, the order of "
        f"groups[{wrong.head}], where {names[wrong.target]!r} reads {names[wrong.source]!r}"
    )


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """A group in its written form."""

    order: int
    operators: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """A certificate in its written form."""

    version: int
    method: str
    graph: str
    groups: tuple[_Row, ...]


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a key given twice would hide the first value."""
    for position, (key, _) in enumerate(pairs):
        if any(key == other for other, _ in pairs[:position]):
            raise CertificateError(f"{key}: given twice in one object")
    return dict(pairs)


def _require_permutation(order: Sequence[int]) -> None:
    groups: dict[int, int] = {}
    for group, place in enumerate(order):
        if not 0 <= place < len(order):
            raise CertificateError(f"groups[{group}].order: {place} is not between 0 and {len(order) - 1}")
        if place in groups:
            raise CertificateError(f"groups[{group}].order: {place} is the order of groups[{groups[place]}] already")
        groups[place] = group
