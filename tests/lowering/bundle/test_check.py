"""The comparison of a compiled model with the original, if no float64 run of the candidate can be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from eqfuse.lowering.base.ports import Port
from eqfuse.lowering.bundle.check import Tolerated, _check_rare_sizes, _verification, fit_to_original
from eqfuse.support.errors import UsageError

from ...engine.models import model, normal, value
from ...onnx_runtime import outputs_of

WEIGHTS = normal(256, 64)


def wave(weights: Any, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Sines of products: at large inputs rounding alone moves them by more than a tolerance."""
    last = [helper.make_node("MatMul", ["z", "w"], ["p"]), helper.make_node("Sin", ["p"], ["y"])]
    return model([*nodes, *last], [value("x", [1, 256])], ["y"], {"w": weights})


@dataclass(frozen=True)
class Candidate:
    """Stands for compiled code: an ONNX model whose file the comparison does not see."""

    proto: onnx.ModelProto

    @property
    def inputs(self) -> tuple[Port, ...]:
        """One matrix."""
        return (Port("x", "float32", (1, 256)),)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run it in ONNX Runtime."""
        return {"y": outputs_of(self.proto, inputs)[0]}


def reversed_sums() -> onnx.ModelProto:
    """The same, summed from the other end."""
    order = helper.make_node("Gather", ["x", "order"], ["z"], axis=1)
    proto = wave(np.ascontiguousarray(WEIGHTS[::-1]), [order])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(255, -1, -1), "order"))
    return proto


def bounded() -> onnx.ModelProto:
    """Wrong, and only on inputs above 50."""
    proto = wave(WEIGHTS, [helper.make_node("Clip", ["x", "low", "high"], ["z"])])
    for name, bound in (("low", -50.0), ("high", 50.0)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(bound), name))
    return proto


@pytest.mark.parametrize(("candidate", "status"), [(reversed_sums, "passed"), (bounded, "failed")])
def test_on_large_numbers_rounding_is_no_difference(
    candidate: Callable[[], onnx.ModelProto], status: str, tmp_path: Any
) -> None:
    original = wave(WEIGHTS, [helper.make_node("Identity", ["x"], ["z"])])
    onnx.save(original, tmp_path / "original.onnx")
    verdict = _verification(tmp_path / "original.onnx", Candidate(candidate()), Tolerated())
    assert verdict.status == status, verdict


@pytest.mark.parametrize(("factor", "status"), [(1 + 3e-6, "passed"), (1 + 5e-5, "failed")])
def test_an_original_without_rounding_is_no_measure(factor: float, status: str, tmp_path: Any) -> None:
    def scaled(by: float) -> onnx.ModelProto:
        scale = {"s": np.float32(by) * np.ones(1, np.float32)}
        return model([helper.make_node("Mul", ["x", "s"], ["y"])], [value("x", [1, 256])], ["y"], scale)

    onnx.save(scaled(1.0), tmp_path / "original.onnx")
    verdict = _verification(tmp_path / "original.onnx", Candidate(scaled(factor)), Tolerated())
    assert verdict.status == status, verdict


@pytest.mark.parametrize(("by", "status"), [(8.0, "passed"), (1024.0, "failed")])
def test_rounding_beyond_the_tolerance_that_is_less_than_that_of_the_inputs(
    by: float, status: str, tmp_path: Any
) -> None:
    """Each rounds inputs more than the original, which is near to the truth: the first by some of their last digits."""

    def steep(by: float) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Add", ["x", "by"], ["z"]),
            helper.make_node("Sub", ["z", "by"], ["rounded"]),
            helper.make_node("Mul", ["rounded", "s"], ["p"]),
            helper.make_node("Sin", ["p"], ["y"]),
        ]
        numbers = {"by": np.full(1, by, np.float32), "s": np.full(1, 8192, np.float32)}
        return model(nodes, [value("x", [1, 256])], ["y"], numbers)

    onnx.save(steep(0.0), tmp_path / "original.onnx")
    verdict = _verification(tmp_path / "original.onnx", Candidate(steep(by)), Tolerated())
    assert verdict.status == status, verdict


@pytest.mark.parametrize(("units", "status"), [(6.0, "passed"), (64.0, "failed")])
def test_rounding_of_weights_behind_a_mean_which_cancels_that_of_the_inputs(
    units: float, status: str, tmp_path: Any
) -> None:
    """The candidate's weights are off by some units in the last place, like products summed in another order."""
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (64, 64))

    def mean_wave(units: float) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Abs", ["x"], ["size"]),
            helper.make_node("ReduceMean", ["size"], ["z"], axes=[1], keepdims=1),
            helper.make_node("Mul", ["z", "ones"], ["row"]),
            helper.make_node("MatMul", ["row", "w"], ["p"]),
            helper.make_node("Sin", ["p"], ["y"]),
        ]
        weights = (normal(64, 64) * (1 + units * 2.0**-23 * signs)).astype(np.float32)
        return model(nodes, [value("x", [1, 256])], ["y"], {"ones": np.ones((1, 64), np.float32), "w": weights})

    onnx.save(mean_wave(0.0), tmp_path / "original.onnx")
    verdict = _verification(tmp_path / "original.onnx", Candidate(mean_wave(units)), Tolerated())
    assert verdict.status == status, verdict


def shifted(by: Any) -> onnx.ModelProto:
    """The input; of what is above 50, the digits that are left if that many times as much is added and taken away."""
    nodes = [
        helper.make_node("Sub", ["x", "high"], ["above"]),
        helper.make_node("Relu", ["above"], ["large"]),
        helper.make_node("Mul", ["large", "s"], ["shift"]),
        helper.make_node("Add", ["x", "shift"], ["z"]),
        helper.make_node("Sub", ["z", "shift"], ["y"]),
    ]
    numbers = {"high": np.full(1, 50, np.float32), "s": np.float32(by) * np.ones(1, np.float32)}
    return model(nodes, [value("x", [1, 256])], ["y"], numbers)


@pytest.mark.parametrize(
    ("rewritten", "status"),
    [(None, "failed"), (shifted(2.0**18), "passed"), (shifted(8.0), "failed"), (reversed_sums(), "failed")],
    ids=["unknown", "the same", "rounds less", "another function"],
)
def test_rounding_of_the_rewritten_model_is_no_difference(
    rewritten: onnx.ModelProto | None, status: str, tmp_path: Any
) -> None:
    onnx.save(shifted(0.0), tmp_path / "original.onnx")
    path = None
    if rewritten is not None:
        path = tmp_path / "rewritten.onnx"
        onnx.save(rewritten, path)
    verdict = _verification(tmp_path / "original.onnx", Candidate(shifted(2.0**18)), Tolerated(), path)
    assert verdict.status == status, verdict


@pytest.mark.parametrize(("by", "status"), [(2.0**19, "passed"), (2.0**21, "failed")], ids=["nearer", "farther"])
def test_what_is_nearer_to_the_truth_than_the_original_is_right(by: float, status: str, tmp_path: Any) -> None:
    """Each rounds elements that the other leaves alone."""
    odd = np.arange(256) % 2
    onnx.save(shifted(2.0**20 * odd), tmp_path / "original.onnx")
    verdict = _verification(tmp_path / "original.onnx", Candidate(shifted(by * (1 - odd))), Tolerated())
    assert verdict.status == status, verdict


@dataclass(frozen=True)
class Rows:
    """Stands for compiled code of rows of any number, which is wrong for one row."""

    refuses: bool = False

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Rows of any number."""
        return (Port("x", "float32", ("N", 4)),)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The square roots."""
        if self.refuses:
            raise UsageError("these rows are too few")
        return {"y": np.sqrt(inputs["x"]) * (len(inputs["x"]) != 1)}


@pytest.mark.parametrize(("rows", "refuses", "reason"), [(0, False, ""), (1, False, "for N=1: "), (1, True, "")])
def test_rare_sizes_on_which_compiled_code_is_wrong(rows: int, refuses: bool, reason: str, tmp_path: Path) -> None:
    onnx.save(model([helper.make_node("Sqrt", ["x"], ["y"])], [value("x", ["N", 4])], ["y"]), tmp_path / "m.onnx")
    wrong, _ = _check_rare_sizes(tmp_path / "m.onnx", Rows(refuses), Tolerated(), [{"N": rows}])
    assert (wrong.reason if wrong is not None else "")[: len(reason)] == reason
    assert (wrong is None) == (not reason)


@dataclass(frozen=True)
class Flat:
    """Stands for a compiled Reshape to `[N, -1]`, of no elements if N is 0."""

    inputs: tuple[Port, ...] = (Port("x", "float32", ("N", 4)),)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Rows of 4."""
        return {"y": np.asarray(inputs["x"]).reshape(len(inputs["x"]), 4).T}


@pytest.mark.parametrize(("empty", "passes"), [((), True), (("N",), False)])
def test_shapes_without_elements_count_if_the_user_says_so(empty: Sequence[str], passes: bool, tmp_path: Path) -> None:
    """A target of a Reshape that is 0 because a size is copies a dimension."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["four", "n"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "one": np.array([1]), "four": np.array([-1])}
    onnx.save(model(nodes, [value("x", ["N", 4])], ["y"], weights), tmp_path / "m.onnx")
    wrong, _ = _check_rare_sizes(tmp_path / "m.onnx", Flat(), Tolerated(empty=frozenset(empty)), [{"N": 0}])
    assert (wrong is None) == passes


@dataclass(frozen=True)
class Steps:
    """Stands for a compiled LSTM that is always wrong."""

    inputs: tuple[Port, ...] = (Port("x", "float32", ("T", 1, 4)),)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """States and cell beyond 1."""
        return {"y": np.full((len(inputs["x"]), 1, 1, 3), 2, np.float32), "c": np.full((1, 1, 3), 2, np.float32)}


@pytest.mark.parametrize("steps", [0, 1])
def test_states_after_no_steps_are_not_compared(steps: int, tmp_path: Path) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y", "", "c"], hidden_size=3)
    weights = {"w": normal(1, 12, 4), "r": normal(1, 12, 3)}
    onnx.save(model([node], [value("x", ["T", 1, 4])], ["y", "c"], weights), tmp_path / "m.onnx")
    wrong, _ = _check_rare_sizes(tmp_path / "m.onnx", Steps(), Tolerated(), [{"T": steps}])
    assert (wrong is None) == (steps == 0)


def test_typical_sizes_are_such_that_the_original_runs_on_them(tmp_path: Path) -> None:
    """A mask is read at as many positions as are past and new, which no shape says."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["all"], axis=1),
        helper.make_node("Shape", ["all"], ["s"], start=1),
        helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["places"]),
        helper.make_node("Gather", ["mask", "places"], ["read"], axis=1),
        helper.make_node("Mul", ["read", "all"], ["y"]),
    ]
    inputs = [value("past", ["B", "P"]), value("new", ["B", "S"]), value("mask", ["B", "M"])]
    path, stored = tmp_path / "m.onnx", {"zero": np.asarray(0), "one": np.asarray(1)}
    onnx.save(model(nodes, inputs, ["y"], stored), path)
    ports = [Port(name, "float32", ("B", size)) for name, size in (("past", "P"), ("new", "S"), ("mask", "M"))]
    sizes = fit_to_original(path, ports, {"B": 1, **dict.fromkeys("PSM", 128)}, 0, 60)
    assert sizes["M"] >= sizes["P"] + sizes["S"]
    fitting = {"B": 2, "P": 3, "S": 4, "M": 9}
    assert fit_to_original(path, ports, fitting, 0, 60) == fitting


class Quantized:
    """Stands for compiled code, which has a row of integers for each row."""

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Rows, and the scale of each."""
        return Port("x", "float32", ("N", 4)), Port("s", "float32", ("P",))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run it in numpy, on whatever scales there are."""
        scales = np.resize(inputs["s"], (len(inputs["x"]), 1))
        return {"y": np.clip(np.rint(inputs["x"] / scales), 0, 255).astype(np.uint8)}


def test_sizes_that_onnx_runtime_refuses_are_not_asked_of_the_reference_evaluator(tmp_path: Path) -> None:
    """That one would repeat a single row for all scales."""
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=0)
    proto = model([node], [value("x", ["N", 4]), value("s", ["P"])], ["y"], {})
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    onnx.save(proto, tmp_path / "m.onnx")
    tolerated = Tolerated(sizes=({"N": 1, "P": 5},))
    assert _verification(tmp_path / "m.onnx", Quantized(), tolerated).status == "passed"
