"""What every cost model keeps to."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.costmodels.model import LEAVES, CostModel, FlopsCost, RooflineCost, cost_model
from eqfuse.ir.operation import Attributes, Operation
from eqfuse.ir.operators import OPERATORS
from eqfuse.ir.types import TensorType

MODELS: list[CostModel] = [FlopsCost(), RooflineCost(load_device(DEFAULT_DEVICE))]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)

dimensions = st.one_of(st.integers(0, 300), st.sampled_from(["batch", "length"]), st.just(2**50), st.just(-1))
types = st.one_of(
    st.none(),
    st.builds(
        TensorType,
        st.sampled_from(["float32", "int64", "bool", "string", "int4", "unheard-of"]),
        st.one_of(st.none(), st.lists(dimensions, max_size=5).map(tuple)),
    ),
)
values = st.one_of(
    st.integers(-3, 9),
    st.floats(),
    st.sampled_from(["", "linear", "tanh"]),
    st.lists(st.integers(-9, 99), max_size=5).map(tuple),
)
names = ["axis", "axes", "perm", "group", "kernel_shape", "steps", "split", "mode", "alpha", "transA", "continued"]
attributes_of_any_kind = st.dictionaries(st.sampled_from(names), values)


def f32(*shape: int) -> TensorType:
    return TensorType("float32", shape)


def cost(
    model: CostModel, op: str, *operands: TensorType, output: TensorType, attributes: Attributes | None = None
) -> float:
    return model.cost(Operation.of(op, attributes or {}, operands, output, (False,) * len(operands)))


@each_model
def test_a_product_of_integers_without_operands_has_a_cost(model: CostModel) -> None:
    assert isfinite(model.cost(Operation.of("MatMulInteger", {}, (), None, ())))


@given(
    model=st.sampled_from(MODELS),
    op=st.sampled_from([*OPERATORS, "LSTM", "Einsum", "TopK", "If"]),
    attributes=attributes_of_any_kind,
    operands=st.lists(types, max_size=5).map(tuple),
    output=types,
    constant=st.lists(st.booleans(), max_size=5).map(tuple),
)
def test_every_cost_is_finite_and_not_negative(
    model: CostModel,
    op: str,
    attributes: Attributes,
    operands: tuple[TensorType | None, ...],
    output: TensorType | None,
    constant: tuple[bool, ...],
) -> None:
    cost = model.cost(Operation.of(op, attributes, operands, output, constant))
    assert isfinite(cost)
    assert cost >= 0


@given(
    model=st.sampled_from(MODELS),
    rows=st.lists(st.integers(1, 4000), min_size=2, max_size=6),
    width=st.integers(1, 300),
)
def test_a_chain_of_binary_concats_costs_one_concat(model: CostModel, rows: list[int], width: int) -> None:
    parts = [f32(width, r) for r in rows]
    whole = cost(model, "Concat", *parts, output=f32(width, sum(rows)), attributes={"axis": 1})
    ends = [sum(rows[: i + 1]) for i in range(len(rows))]
    chain = sum(
        cost(
            model,
            "Concat",
            f32(width, before),
            part,
            output=f32(width, after),
            attributes={"axis": 1, "continued": (0 if before == rows[0] else 1, 0)},
        )
        for (before, after), part in zip(pairwise(ends), parts[1:], strict=True)
    )
    assert chain == pytest.approx(whole)


@given(model=st.sampled_from(MODELS), rows=st.integers(1, 512), more=st.integers(1, 512), columns=st.integers(1, 512))
def test_a_larger_matmul_never_costs_less(model: CostModel, rows: int, more: int, columns: int) -> None:
    weight = f32(64, columns)
    small = cost(model, "MatMul", f32(rows, 64), weight, output=f32(rows, columns))
    assert small <= cost(model, "MatMul", f32(rows + more, 64), weight, output=f32(rows + more, columns))


@each_model
@pytest.mark.parametrize("leaf", sorted(LEAVES))
def test_leaves_are_free(model: CostModel, leaf: str) -> None:
    assert cost(model, leaf, output=f32(1000)) == 0


@each_model
def test_a_node_on_constants_costs_next_to_nothing_but_something(model: CostModel) -> None:
    weight = f32(1000, 1000)
    folded = model.cost(Operation.of("Mul", {}, (weight, weight), weight, (True, True)))
    assert 0 < folded < 1e-5 * cost(model, "Mul", weight, weight, output=weight)


@each_model
def test_a_bias_in_the_gemm_beats_a_separate_add(model: CostModel) -> None:
    x, weight, bias = f32(128, 768), f32(768, 768), f32(768)
    separate = cost(model, "MatMul", x, weight, output=x) + cost(model, "Add", x, bias, output=x)
    assert cost(model, "Gemm", x, weight, bias, output=x) < separate


@each_model
def test_factoring_out_a_product_is_cheaper(model: CostModel) -> None:
    x = f32(128, 768)
    add, mul = cost(model, "Add", x, x, output=x), cost(model, "Mul", x, x, output=x)
    assert add + mul < mul + mul + add


def test_of_equal_flops_fewer_bytes_win() -> None:
    model, x = FlopsCost(), f32(128, 768)
    assert cost(model, "Reshape", x, output=x) < cost(model, "Transpose", x, output=x)


def test_the_tie_break_stays_below_the_flops() -> None:
    x = f32(128, 768)
    assert cost(FlopsCost(), "Add", x, x, output=x) == pytest.approx(128 * 768, rel=1e-4)


@pytest.mark.parametrize(("name", "unit"), [("flops", "FLOP"), ("roofline", "s")])
def test_cost_model_by_name(name: str, unit: str) -> None:
    assert name in ("flops", "roofline")
    model = cost_model("flops" if name == "flops" else "roofline", load_device(DEFAULT_DEVICE))
    assert (model.name, model.unit) == (name, unit)
