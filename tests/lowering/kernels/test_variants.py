"""Other ways to compile a kernel: which there are, and what each makes of a partition."""

from __future__ import annotations

import numpy as np
from onnx import helper

from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.decisions import DecisionSite, Option
from eqfuse.lowering.kernels.messages import Answer, Choices
from eqfuse.lowering.kernels.variants import KernelPartition, Variant, list_variants

from ..small_models import graph_of, model, weights

DIRECT = DecisionSite("algorithm", (Option("winograd 2", 1.0, {}), Option("direct", 2.0, {})), 0)
TILE = DecisionSite("tile", (Option("8x2", 1.0, {}), Option("4x4", 2.0, {})), 0)


def gate() -> OperatorGraph:
    """A product whose halves are multiplied: MatMul, Relu, Slice, Slice, Mul."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Slice", ["r", "zero", "four", "axis"], ["left"]),
        helper.make_node("Slice", ["r", "four", "eight", "axis"], ["right"]),
        helper.make_node("Mul", ["left", "right"], ["y"]),
    ]
    ends = {name: np.array([n]) for name, n in (("zero", 0), ("four", 4), ("eight", 8), ("axis", 1))}
    return graph_of(model(nodes, {"x": (2, 8)}, {"y": (2, 4)}, w=weights(8, 8), **ends))


def answer(rule: str, *sites: DecisionSite) -> Answer:
    return Answer("kernel", 0.0, rule=rule, trace=sites)


def test_computing_and_moving_are_parted_first_and_onnx_runtime_comes_last() -> None:
    graph = gate()
    members = tuple(range(len(graph)))
    assert list(list_variants(graph, members, answer("contraction"))) == [
        Variant(cuts=(2, 4)),
        Variant(without=("contraction",)),
        Variant(cuts=(1, 2, 3, 4)),
        Variant(runtime=True),
    ]


def test_a_kernel_of_two_products_is_parted_between_them() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    graph = graph_of(model(nodes, {"x": (2, 8)}, {"y": (2, 8)}, w=weights(8, 8)))
    variants = list(list_variants(graph, (0, 1), answer("product_chain")))
    assert variants == [Variant(cuts=(1,)), Variant(without=("product_chain",)), Variant(runtime=True)]


def test_another_algorithm_is_tried_but_no_other_tile() -> None:
    variants = list(list_variants(gate(), (0,), answer("winograd", DIRECT, TILE)))
    assert variants == [Variant(decisions=(("algorithm", "direct"),)), Variant(runtime=True)]


def test_there_is_no_rule_behind_the_last() -> None:
    assert list(list_variants(gate(), (1,), answer("fallback"))) == [Variant(runtime=True)]


def test_every_call_of_a_kernel_is_cut_and_no_other() -> None:
    partition = KernelPartition(((0, 1), (2,), (3, 4))).vary(gate(), [(0, 1), (3, 4)], "task", Variant(cuts=(1,)))
    assert partition == KernelPartition(((0,), (1,), (2,), (3,), (4,)))


def test_maps_that_have_their_channels_last_may_be_stored_in_onnx_order() -> None:
    graph = gate()
    between = graph.operators[0].outputs[0]
    variants = list(list_variants(graph, (0,), answer("contraction"), frozenset({between})))
    assert variants == [Variant(without=("contraction",)), Variant(plain=True), Variant(runtime=True)]
    partition = KernelPartition(((0,), (1, 2, 3, 4))).vary(graph, [(0,)], "task", Variant(plain=True))
    assert between in partition.choices.plain


def test_decisions_and_rules_left_out_add_up() -> None:
    partition = KernelPartition(((0,),))
    for variant in (Variant(decisions=(("a", "1"),)), Variant(without=("rows",)), Variant(without=("window",))):
        partition = partition.vary(gate(), [(0,)], "task", variant)
    assert partition.choices == Choices({"task": {"a": "1"}}, {"task": frozenset({"rows", "window"})})


def test_onnx_runtime_gets_all_operators_of_all_calls() -> None:
    partition = KernelPartition(((0, 1), (2,), (3, 4))).vary(gate(), [(0, 1), (3, 4)], "task", Variant(runtime=True))
    assert set(partition.choices.runtime) == {0, 1, 3, 4}


def test_the_text_of_a_variant_gives_it_again() -> None:
    decided = Variant(decisions=(("a", "b"),))
    for variant in (Variant(), Variant(cuts=(1, 3)), decided, Variant(without=("rows",)), Variant(plain=True)):
        assert Variant.of(variant.text) == variant


def test_the_text_of_a_search_is_no_variant() -> None:
    assert Variant.of('{"tile":"8x2"}') is None
