"""Values that are bound by names: `keep_in_memory`, `keep_numbers`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import helper
from tvm import tirx

from eqfuse.lowering.kernels.build import build, keep_in_memory, keep_numbers
from eqfuse.lowering.kernels.prim_funcs import lower_kernel
from eqfuse.lowering.schedules import schedule
from eqfuse.lowering.schedules.base.blocks import BlockInfo
from eqfuse.lowering.schedules.base.draft import Draft

from ...onnx_runtime import outputs_of
from ..in_tvm import Call, in_tvm
from ..schedules.functions import HOST
from ..small_models import model

SIDES = [("Relu", "Neg"), ("Relu", "Mul"), ("Tanh", "Sigmoid")]
MOST_NODES = 800
"""Nodes of a scheduled kernel for each level of diamonds: a value of at most MOST_REPEATED parts is written out
wherever it is read."""
SEVERAL_READS = (
    "Abs", "Asinh", "Atanh", "Celu", "Elu", "HardSwish", "LeakyRelu", "Log", "Selu", "Sign", "Sin",
    "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
)  # fmt: skip


def chain(operators: list[str]) -> Call:
    names = ["x", *(f"v{number}" for number in range(len(operators) - 1)), "y"]
    nodes = [helper.make_node(op, [x], [y]) for op, (x, y) in zip(operators, pairwise(names), strict=True)]
    x = np.random.default_rng(0).uniform(-1, 1, (4, 40)).astype(np.float32)
    return Call(model(nodes, {"x": x.shape}, {"y": x.shape}), {"x": x})


def inlined(operators: list[str]) -> Any:
    """The body of the scheduled kernel."""
    graph = chain(operators).graph
    return schedule(lower_kernel(graph, range(len(graph)), "k").prim_func, HOST).schedule.mod["main"].body


def count(body: Any, kind: type) -> int:
    found: list[Any] = []
    tvm_ffi.structural_walk(body, [(kind, found.append)])
    return len(found)


def test_bound_values_are_kept_in_memory_every_few_operators() -> None:
    """The simplifier would write the innermost of 40 LeakyRelu 3^40 times."""
    kept = [count(keep_in_memory(inlined(["LeakyRelu"] * number)), tirx.AllocBuffer) for number in (4, 20, 40)]
    assert kept[0] == 0
    assert 2 <= kept[1] <= 8
    assert abs(kept[2] - 2 * kept[1]) <= 1


def test_each_operator_of_a_chain_is_inlined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as the whole chain is long, so that no schedule rule tries it in vain."""
    inlining: list[str] = []
    inline = Draft.inline

    def count_and_inline(draft: Draft, block: BlockInfo) -> None:
        inlining.append(block.name)
        inline(draft, block)

    monkeypatch.setattr(Draft, "inline", count_and_inline)
    inlined(["Neg", "Abs", "Sqrt", "Relu"] * 5)
    assert len(inlining) == 19
    assert len(set(inlining)) == 19


def diamonds(depth: int, sides: tuple[str, str]) -> Call:
    """Values that two operators read, whose sum is the next such value."""
    nodes = []
    for level in range(depth):
        source, result = f"v{level}", f"v{level + 1}"
        for side, op in zip("ab", sides, strict=True):
            operands = [source] if op != "Mul" else [source, source]
            nodes.append(helper.make_node(op, operands, [f"{side}{level}"]))
        nodes.append(helper.make_node("Add", [f"a{level}", f"b{level}"], [result]))
    x = np.zeros((4, 40), np.float32)
    return Call(model(nodes, {"v0": x.shape}, {f"v{depth}": x.shape}), {"v0": x})


@pytest.mark.parametrize(
    "sides",
    [("LeakyRelu", "Abs"), *(pytest.param(sides, marks=pytest.mark.conformance) for sides in SIDES)],
)
def test_what_is_read_twice_does_not_grow_by_its_depth(sides: tuple[str, str]) -> None:
    """Written out wherever it is read, the innermost value would stand in a kernel 2^40 times."""
    sizes = []
    for depth in (8, 20, 40):
        graph = diamonds(depth, sides).graph
        scheduled = schedule(lower_kernel(graph, range(len(graph)), "k").prim_func, HOST).schedule.mod["main"]
        sizes.append(count(keep_in_memory(scheduled.body), object))
    assert sizes[1] <= MOST_NODES * 20
    assert sizes[2] <= MOST_NODES * 40


def test_short_chains_are_left_alone() -> None:
    body = inlined(["LeakyRelu"] * 4)
    assert tvm_ffi.structural_equal(keep_in_memory(body), body)


def test_what_is_computed_on_a_condition_stays_on_it() -> None:
    """A value behind a border is not loaded."""
    x, y = tirx.decl_buffer((8,), name="x"), tirx.decl_buffer((9,), name="y")
    i = tirx.Var("i", "int32")
    value: Any = tirx.BufferLoad(x, [i - 1])
    for _ in range(12):
        variable = tirx.Var("t", "float32")
        value = tirx.Let(variable, value, tirx.Select(variable < 0.0, variable * 0.5, variable))
    store = tirx.BufferStore(y, tirx.if_then_else(i >= 1, value, tirx.const(7, "float32")), [i])
    assert count(keep_in_memory(store), tirx.IfThenElse) == 1
    loop = tirx.For(i, tirx.const(0, "int32"), tirx.const(9, "int32"), tirx.ForKind.SERIAL, store)
    function = tirx.PrimFunc([x, y], loop).with_attr("global_symbol", "f")
    given = np.linspace(-4, 3, 8, dtype=np.float32)
    result = tvm.runtime.empty((9,), "float32")
    build(tvm.IRModule({"f": function}), tvm.target.Target("llvm"))["f"](tvm.runtime.tensor(given), result)
    expected = np.where(given < 0, given * np.float32(0.5**12), given)
    np.testing.assert_array_equal(result.numpy(), [7, *expected])


def check(calls: list[Call]) -> None:
    for call, results in zip(calls, in_tvm(calls), strict=True):
        (expected,) = outputs_of(call.model, call.feeds, as_written=True)
        np.testing.assert_allclose(results["y"], expected, rtol=2e-3, atol=1e-4)


@pytest.mark.conformance
@pytest.mark.parametrize("operator", SEVERAL_READS)
def test_long_chains_of_one_operator(operator: str) -> None:
    check([chain([operator] * number) for number in (1, 3, 9, 40)])


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(20))
def test_long_chains_of_several_operators(seed: int) -> None:
    generator = np.random.default_rng(seed)
    check([chain(list(generator.choice(SEVERAL_READS, generator.integers(1, 41)))) for _ in range(4)])


def test_the_code_generator_gets_no_named_numbers() -> None:
    """It would simplify each with all that it is made of; vectors are kept as well, and integers stay names."""
    x, y = tirx.decl_buffer((4,), "float32x8", name="x"), tirx.decl_buffer((4,), "float32x8", name="y")
    row, place = tirx.Var("row", "int32"), tirx.Var("place", "int32")
    names = [tirx.Var(f"t{number}", "float32x8") for number in range(6)]
    statements = [tirx.Bind(place, 3 - row), tirx.Bind(names[0], tirx.BufferLoad(x, [place]))]
    statements += [tirx.Bind(after, before * before - before) for before, after in pairwise(names)]
    loop = tirx.For(
        row, tirx.const(0, "int32"), tirx.const(4, "int32"), tirx.ForKind.SERIAL,
        tirx.SeqStmt([*statements, tirx.BufferStore(y, names[-1], [row])]),
    )  # fmt: skip
    bound: list[Any] = []
    tvm_ffi.structural_walk(keep_numbers(loop), [(tirx.Bind, lambda bind: bound.append(str(bind.var.ty)))])
    assert bound == ["int32"]
    function = tirx.PrimFunc([x, y], loop).with_attr("global_symbol", "f")
    given = np.random.default_rng(0).uniform(0, 1, (4, 8)).astype(np.float32)
    expected = given[::-1].astype(np.float64)
    for _ in range(5):
        expected = expected * expected - expected
    operand, result = (tvm.runtime.empty((4,), "float32x8") for _ in range(2))
    operand.copyfrom(given)
    build(tvm.IRModule({"f": function}), tvm.target.Target("llvm"))["f"](operand, result)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-6)
