"""Random inputs suit the use of the input and are reproducible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from eqfuse.engine.verification import verify
from eqfuse.engine.verification.inputs.draws import generate, vary
from eqfuse.engine.verification.inputs.plans import Plan, enlarge, input_specs, plans
from eqfuse.engine.verification.runs.structure import Structure

from ..models import Weights, model, normal, value


def draw(
    nodes: Sequence[onnx.NodeProto], fed: onnx.ValueInfoProto, weights: Weights | None = None, seed: int = 0
) -> NDArray[Any]:
    specs = input_specs(Structure(model(nodes, [fed], ["y"], weights)))
    array: NDArray[Any] = generate(specs, next(plans(specs, {})), seed)[fed.name]
    return array


def integers(name: str = "x", element_type: int = TensorProto.INT64) -> onnx.ValueInfoProto:
    return value(name, [50, 20], element_type)


def test_gather_indices_fill_the_table() -> None:
    array = draw([helper.make_node("Gather", ["w", "x"], ["y"])], integers(), {"w": normal(37, 2)})
    assert (array.min(), array.max()) == (0, 36)


def test_gather_axis_counts() -> None:
    array = draw([helper.make_node("Gather", ["w", "x"], ["y"], axis=-1)], integers(), {"w": normal(37, 5)})
    assert array.max() == 4


def test_indices_are_recognised_through_a_cast() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["c", "axes"], ["u"]),
        helper.make_node("Gather", ["w", "u"], ["y"]),
    ]
    array = draw(nodes, integers(element_type=TensorProto.INT32), {"w": normal(300, 2), "axes": np.array([0])})
    assert array.max() > 250


def test_one_hot_ids_stay_below_the_depth() -> None:
    weights = {"depth": np.int64(3), "values": np.array([0.0, 1.0], np.float32)}
    array = draw([helper.make_node("OneHot", ["x", "depth", "values"], ["y"])], integers(), weights)
    assert set(np.unique(array)) == {0, 1, 2}


@pytest.mark.parametrize("element_type", [TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL])
def test_mask_is_binary_and_leaves_no_row_empty(element_type: int) -> None:
    array = draw([helper.make_node("Identity", ["attention_mask"], ["y"])], integers("attention_mask", element_type))
    assert set(np.unique(array)) == {0, 1}
    assert array.any(axis=1).all()


def test_mask_is_recognised_by_its_use() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "c"], ["y"]),
    ]
    assert set(np.unique(draw(nodes, integers(), {"one": np.float32(1)}))) == {0, 1}


def test_bytes_use_their_whole_range() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT), helper.make_node("Mul", ["c", "c"], ["y"])]
    array = draw(nodes, integers(element_type=TensorProto.UINT8))
    assert (array.min(), array.max()) == (0, 255)


@pytest.mark.parametrize("operator", ["Sqrt", "Log"])
def test_domain_of_a_direct_consumer_is_kept(operator: str) -> None:
    assert draw([helper.make_node(operator, ["x"], ["y"])], value("x", [100])).min() > 0


def test_integer_divisors_are_never_zero() -> None:
    nodes = [helper.make_node("Div", ["w", "x"], ["y"])]
    assert draw(nodes, integers(), {"w": np.array([5])}).min() > 0


def test_floats_are_standard_normal() -> None:
    array = draw([helper.make_node("Relu", ["x"], ["y"])], value("x", [100, 100]))
    assert abs(array.mean()) < 0.05
    assert abs(array.std() - 1) < 0.05


def test_seed_decides() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    first, same, other = (draw(nodes, value("x", [9]), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, same)
    assert not np.any(first == other)


def sizes_of(*dims: Sequence[int | str], plan: int = 0) -> list[tuple[int, ...]]:
    inputs = [value(f"x{index}", shape) for index, shape in enumerate(dims)]
    nodes = [helper.make_node("Sum", [item.name for item in inputs], ["y"])]
    specs = input_specs(Structure(model(nodes, inputs, ["y"])))
    chosen: Plan | None = list(plans(specs, {}))[plan]
    assert chosen is not None
    return [array.shape for array in generate(specs, chosen, 0).values()]


def test_symbol_has_one_size_everywhere() -> None:
    assert sizes_of(["batch", "n"], [3, "n"]) == [(2, 8), (3, 8)]


def test_expression_of_symbols_is_evaluated() -> None:
    assert sizes_of(["b", "past"], ["b", "past + 1"], ["b", "2*past"]) == [(2, 8), (2, 9), (2, 16)]


def test_a_dimension_may_be_the_sum_of_two_others() -> None:
    """A decoder with a cache has a mask over the positions that are past and new, and no shape says so."""
    fed = [value("mask", ["b", "all"]), value("x", ["b", "new"]), value("past", ["b", 2, "old"])]
    nodes = [helper.make_node("Identity", [each.name], [f"{each.name}_y"]) for each in fed]
    specs = input_specs(Structure(model(nodes, fed, [f"{each.name}_y" for each in fed])))
    assert {"b": 2, "all": 16, "new": 8, "old": 8} in [dict(plan.sizes) for plan in plans(specs, {})]


def test_an_integer_may_be_one_of_the_numbers_that_the_model_compares_it_with() -> None:
    """As a sampling rate, for which a model has a branch, while it runs on no other value."""
    nodes = [helper.make_node("Equal", ["x", "rate"], ["y"])]
    stored = {"rate": np.array(16000)}
    specs = input_specs(Structure(model(nodes, [value("x", [], TensorProto.INT64)], ["y"], stored)))
    assert 16000 in [int(generate(specs, plan, 0)["x"]) for plan in plans(specs, {})]


def test_enlarged_plan_changes_every_free_size() -> None:
    specs = input_specs(Structure(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["b", 3, "n"])], ["y"])))
    (larger,) = enlarge(next(plans(specs, {})), specs, has_windows=False)
    assert dict(larger.sizes) == {"b": 3, "n": 12}


def test_windows_get_neighbours_to_read_by_sizes_tried_first() -> None:
    specs = input_specs(Structure(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["b", 3, "n"])], ["y"])))
    larger = enlarge(next(plans(specs, {})), specs, has_windows=True)
    assert [dict(plan.sizes) for plan in larger] == [{"b": 3, "n": 50}, {"b": 3, "n": 64}, {"b": 3, "n": 12}]


def test_nothing_is_enlarged_when_shapes_are_given() -> None:
    specs = input_specs(Structure(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["b", 3])], ["y"])))
    assert list(enlarge(next(plans(specs, {"x": (5, 3)})), specs, has_windows=True)) == []


def test_varied_values_stay_in_range() -> None:
    sample = {"f": np.linspace(1, 2, 50, dtype=np.float32), "i": np.arange(50)}
    varied = vary(sample, [], 0, order=True)
    assert (varied["f"] >= 0.5).all()
    assert (varied["f"] <= sample["f"]).all()
    assert sorted(varied["i"]) == list(range(50))


def test_the_first_unnamed_dimension_of_a_state_may_be_the_batch() -> None:
    fed = [value("x", [None, None]), value("state", [2, None, 128])]
    nodes = [helper.make_node("Identity", [each.name], [f"{each.name}_y"]) for each in fed]
    specs = input_specs(Structure(model(nodes, fed, ["x_y", "state_y"])))
    shapes = [{n: v.shape for n, v in generate(specs, plan, 0).items()} for plan in plans(specs, {})]
    assert {"x": (1, 256), "state": (2, 256, 128)} in shapes
    assert {"x": (1, 256), "state": (2, 1, 128)} in shapes
    named = input_specs(Structure(model(nodes, [value("x", ["n", "m"]), fed[1]], ["x_y", "state_y"])))
    assert any(plan.shapes for plan in plans(specs, {}))
    assert not any(plan.shapes for plan in plans(named, {}))


def test_sizes_are_drawn_until_the_original_runs() -> None:
    """One dimension is a multiple of 3, the other of 5: no list has both."""
    nodes = [helper.make_node("Reshape", ["a", "s"], ["y"]), helper.make_node("Reshape", ["b", "t"], ["z"])]
    shapes = {"s": np.array([3, -1]), "t": np.array([-1, 5])}
    original = model(nodes, [value("a", ["n"]), value("b", ["m"])], ["y", "z"], shapes)
    assert verify(original, original).status == "passed"
