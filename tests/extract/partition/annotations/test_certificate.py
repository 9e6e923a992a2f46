"""Certificates of partitions: read strictly, checked by order and by z3."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse.extract.partition.annotations.certificate import (
    Certificate,
    CertificateError,
    certificate_of,
    check,
    fingerprint,
    operator_names,
)
from eqfuse.extract.partition.annotations.proof import Proof, certify
from eqfuse.extract.partition.groups import PartitionError, partition_of, unfused
from eqfuse.ir.graph import Operator, OperatorGraph

from ..dags import Edges, acyclic, edges, graph_of

DIAMOND = graph_of([[], [0], [0], [1, 2]])
TRIANGLE = graph_of([[], [0], [0, 1]])
Check = Callable[[OperatorGraph, Certificate], object]
SETTINGS = settings(deadline=None)
CHECKS = pytest.mark.parametrize("verify", [check, certify])


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Edges, list[int]]:
    """A graph of 1 to 8 operators and a group for each."""
    predecessors = draw(edges(8).filter(bool))
    size = len(predecessors)
    return predecessors, draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))


def certificate_from(graph: OperatorGraph, labels: Sequence[int]) -> Certificate:
    """What somebody may claim: groups by label, in the order of the labels, right or wrong."""
    names = operator_names(graph)
    groups = [tuple(n for n, own in zip(names, labels, strict=True) if own == label) for label in sorted({*labels})]
    return Certificate("claimed", fingerprint(graph), tuple(groups), tuple(range(len(groups))))


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    """The certificate of the diamond cut in two, as JSON changed by hand."""
    document = json.loads(certificate_of(partition_of(DIAMOND, [0, 0, 0, 1], "test")).to_json())
    change(document)
    return json.dumps(document)


def put(field: str, value: object) -> Callable[[dict[str, Any]], object]:
    """An edit at the top."""
    return lambda document: document.update({field: value})


def put_in_group(place: int, field: str, value: object) -> Callable[[dict[str, Any]], object]:
    """An edit of one group."""
    return lambda document: document["groups"][place].update({field: value})


@SETTINGS
@given(edges())
def test_a_certificate_comes_back_from_json_and_proves_its_partition(predecessors: Edges) -> None:
    partition = unfused(graph_of(predecessors))
    certificate = Certificate.from_json(certificate_of(partition).to_json())
    assert check(partition.graph, certificate) == partition


def test_the_proof_counts_what_was_proven() -> None:
    certificate = certificate_of(partition_of(DIAMOND, [0, 0, 1, 1], "test"))
    assert certify(DIAMOND, certificate) == Proof(operators=4, groups=2, edges=1, convex=2)


@CHECKS
def test_a_cycle_is_named_by_its_groups_and_operators(verify: Check) -> None:
    with pytest.raises(PartitionError, match=r"^the groups form a cycle: g0 \(n0\) -> g1 \(n1\) -> g0$"):
        verify(TRIANGLE, certificate_from(TRIANGLE, [0, 1, 0]))


@CHECKS
def test_a_cycle_of_three_groups_that_are_each_convex_is_found(verify: Check) -> None:
    graph = graph_of([[], [], [], [1], [2], [0]])  # three chains of two, each group the end of one and the start of one
    with pytest.raises(PartitionError, match=r"^the groups form a cycle: g0 \(n0\) -> g2 \(n2\) -> g1 \(n1\) -> g0$"):
        verify(graph, certificate_from(graph, [0, 1, 2, 0, 1, 2]))


@CHECKS
def test_an_order_that_proves_nothing_is_told_from_a_cycle(verify: Check) -> None:
    right = certificate_of(partition_of(DIAMOND, [0, 0, 0, 1], "test"))
    wrong = Certificate(right.method, right.fingerprint, right.groups, (1, 0))
    with pytest.raises(PartitionError, match=r"^groups\[0\]\.order: 1 is not before 0, .* where 'n3' reads 'n1'$"):
        verify(DIAMOND, wrong)


@SETTINGS
@given(labelled())
def test_exactly_the_acyclic_labelings_are_accepted(case: tuple[Edges, list[int]]) -> None:
    predecessors, labels = case
    graph = graph_of(predecessors)
    if acyclic(predecessors, labels):
        certificate = certificate_of(partition_of(graph, labels, "test"))
        assert check(graph, certificate).count == certify(graph, certificate).groups == len({*labels})
        return
    with pytest.raises(PartitionError, match="form a cycle"):
        partition_of(graph, labels, "test")
    for verify in (check, certify):
        with pytest.raises(PartitionError, match="form a cycle"):
            verify(graph, certificate_from(graph, labels))


def test_a_cycle_inside_a_group_is_named_by_its_operators() -> None:
    graph = graph_of([[], [0, 2], [1]])
    with pytest.raises(PartitionError, match=r"^operators form a cycle: n1 -> n2 -> n1$"):
        certify(graph, certificate_from(graph, [0, 0, 0]))


def test_an_operator_in_front_of_one_that_it_reads_is_named() -> None:
    graph = graph_of([[1], []])
    with pytest.raises(PartitionError, match=r"^'n0' reads 'n1', which stands behind it in the graph$"):
        certify(graph, certificate_from(graph, [0, 0]))


def can_run(graph: OperatorGraph, certificate: Certificate) -> bool:
    """Whether every operand is there when group after group runs, and in a group operator after operator."""
    position = {name: index for index, name in enumerate(operator_names(graph))}
    done: set[int] = set()
    for _, names in sorted(zip(certificate.order, certificate.groups, strict=True)):
        for operator in sorted(position[name] for name in names):
            if not done.issuperset(graph.predecessors[operator]):
                return False
            done.add(operator)
    return True


def random_partition(draw: random.Random) -> tuple[Edges, list[int]]:
    """Up to 14 operators, and groups in an order in which they can run: operators near each other share one."""
    size = draw.randint(3, 14)
    predecessors = [sorted({max(0, n - draw.randint(1, 4)) for _ in range(2)}) if n else [] for n in range(size)]
    labels = [0]
    for _ in range(1, size):
        labels.append(labels[-1] + draw.randint(0, 1))
    return predecessors, labels


def mutant(draw: random.Random) -> tuple[OperatorGraph, Certificate]:
    """A right certificate with one change: an edge turned, a group moved, two orders exchanged, an operator moved."""
    predecessors, labels = random_partition(draw)
    change = draw.choice(("edge", "group", "orders", "operator"))
    if change == "edge":
        reader = draw.randrange(1, len(labels))
        source = draw.choice(predecessors[reader])
        predecessors[reader].remove(source)
        predecessors[source].append(reader)
    if change == "operator":
        labels[draw.randrange(len(labels))] = draw.choice(labels)
    graph = graph_of(predecessors)
    right = certificate_from(graph, labels)
    order = list(right.order)
    if change == "group":
        order.insert(draw.randrange(len(order)), order.pop(draw.randrange(len(order))))
    if change == "orders":
        one, other = draw.randrange(len(order)), draw.randrange(len(order))
        order[one], order[other] = order[other], order[one]
    return graph, replace(right, order=tuple(order))


def test_two_hundred_broken_certificates_are_refused_by_name_and_the_right_ones_accepted() -> None:
    draw = random.Random(33)
    broken = accepted = 0
    while broken < 200:
        graph, certificate = mutant(draw)
        if can_run(graph, certificate):
            assert certify(graph, certificate).groups == len(certificate.groups)
            accepted += 1
            continue
        with pytest.raises(PartitionError, match=r"form a cycle: .* -> |is not before .* reads 'n|^'n\d+' reads 'n"):
            certify(graph, certificate)
        broken += 1
    assert accepted > 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("version", 2), "version: 2 cannot be read, only 1"),
        (put("version", True), "version: expected `int`, got `bool`"),
        (put("method", None), "method: expected `str`, got `null`"),
        (put("graph", "0"), "graph: the certificate is of another graph (its digest differs); partition this one"),
        (put("sign", 1), "certificate: object contains unknown field `sign`"),
        (put("groups", {}), "groups: expected `array`, got `object`"),
        (lambda d: d.pop("groups"), "certificate: object missing required field `groups`"),
        (lambda d: d["groups"].append(3), "groups[2]: expected `object`, got `int`"),
        (lambda d: d["groups"][1].pop("order"), "groups[1]: object missing required field `order`"),
        (put_in_group(1, "orders", 1), "groups[1]: object contains unknown field `orders`"),
        (put_in_group(1, "order", 1.0), "groups[1].order: expected `int`, got `float`"),
        (put_in_group(1, "order", 2), "groups[1].order: 2 is not between 0 and 1"),
        (put_in_group(1, "order", 0), "groups[1].order: 0 is the order of groups[0] already"),
        (put_in_group(1, "operators", []), "groups[1].operators: expected `array` of length >= 1"),
        (put_in_group(1, "operators", "n3"), "groups[1].operators: expected `array`, got `str`"),
        (put_in_group(1, "operators", ["n3", 7]), "groups[1].operators[1]: expected `str`, got `int`"),
        (put_in_group(1, "operators", ["n3", "x"]), "groups[1].operators[1]: no operator is called 'x'"),
        (put_in_group(1, "operators", ["n3", "n0"]), "groups[1].operators[1]: 'n0' is in groups[0] already"),
        (put_in_group(0, "operators", ["n0", "n1"]), "groups: operator 'n2' is in none (1 missing in all)"),
    ],
)
def test_an_edited_certificate_is_refused_by_its_field(
    change: Callable[[dict[str, Any]], object], message: str
) -> None:
    text = edited(change)
    with pytest.raises(CertificateError) as caught:
        check(DIAMOND, Certificate.from_json(text))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "certificate: expected `object`, got `array`"),
        ("{", "certificate: not JSON: "),
        ("[" * 100_000, "certificate: not JSON: "),
        ('{"version": 1, "version": 1}', "version: given twice in one object"),
    ],
)
def test_text_that_is_no_certificate_is_refused(text: str, message: str) -> None:
    with pytest.raises(CertificateError) as caught:
        Certificate.from_json(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_operators_of_one_name_are_told_apart_by_their_index() -> None:
    twice = OperatorGraph(
        tuple(Operator("n", "Add", {}, o.inputs, o.outputs) for o in DIAMOND.operators), DIAMOND.values
    )
    partition = partition_of(twice, [0, 0, 0, 1], "test")
    assert certificate_of(partition).groups == (("0: n", "1: n", "2: n"), ("3: n",))
    assert check(twice, certificate_of(partition)) == partition


def test_a_graph_with_one_more_edge_is_another() -> None:
    assert fingerprint(graph_of([[], [0], [0, 1]])) != fingerprint(graph_of([[], [0], [1]]))


def test_without_time_nothing_is_certified() -> None:
    with pytest.raises(PartitionError, match="could not check the certificate within the time limit"):
        certify(DIAMOND, certificate_of(unfused(DIAMOND)), time_limit=0.0)
