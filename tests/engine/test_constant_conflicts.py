"""A rule that unites two distinct constants ends the run, and only such a rule does."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import helper

from eqfuse.cli import main
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.constant_conflicts import Conflict, find_conflict
from eqfuse.engine.egraph.graph import EClass, EGraph, ENode, Saturation
from eqfuse.engine.egraph.saturate import UnsoundRuleError
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import Knowledge
from eqfuse.ir.types import TensorType
from eqfuse.support.deadlines import OutOfTime

from .models import model, value

RECORD = """\
; made for a test
; @property strength
; @sound real
; @requires none
; @source derived
; @example (Exp x) => (Exp x)
"""
WRONG = '(rewrite (Full s 2.0 t) (Full s 3.0 t) :ruleset explore :name "two-is-three")'
ZERO = '(rewrite (Sub x x) (Full (vec-empty) 0.0 "float32") :ruleset explore :name "zero")'
ONE = '(rewrite (Sub x x) (Full (vec-empty) 1.0 "float32") :ruleset explore :name "one")'
HARMLESS = '(rewrite (Exp (Neg a)) (Reciprocal (Exp a)) :ruleset explore :name "harmless")'


def save_model(folder: Path, dtype: str, nodes: Sequence[onnx.NodeProto], **weights: ArrayLike) -> Path:
    """A model from the scalar x to the scalar y."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    arrays = {name: np.asarray(array, dtype) for name, array in weights.items()}
    path = folder / "in.onnx"
    onnx.save(model(nodes, [value("x", [], kind)], [value("y", [], kind)], arrays), path)
    return path


def double(folder: Path, dtype: str = "float32") -> Path:
    """2x"""
    return save_model(folder, dtype, [helper.make_node("Mul", ["x", "two"], ["y"])], two=2)


def difference(folder: Path) -> Path:
    """exp x - exp x"""
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Sub", ["a", "a"], ["y"])]
    return save_model(folder, "float32", nodes)


def rules(folder: Path, *texts: str) -> Path:
    """A file of rules on its lines 7, 14, 21, ..."""
    path = folder / "own.egg"
    path.write_text("".join(f"{RECORD}{text}\n" for text in texts), encoding="utf-8")
    return path


def optimise(model: Path, *own: Path) -> None:
    optimize_model(model, None, Options(rules=own, trust_rules=True, verify=False, time_limit=600.0))


def message(model: Path, *own: Path) -> str:
    with pytest.raises(UnsoundRuleError) as caught:
        optimise(model, *own)
    return str(caught.value)


# --- whole runs


@pytest.mark.representatives(1)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_distinct_constants_in_one_class_end_the_run(dtype: str, tmp_path: Path) -> None:
    own = rules(tmp_path, WRONG)
    element = "2.0" if dtype.startswith("float") else "2"
    assert f"constants equal: (Full [] 2.0 {dtype}) is {element}, " in message(double(tmp_path, dtype), own)


def test_the_rule_is_named(tmp_path: Path) -> None:
    own = rules(tmp_path, HARMLESS, WRONG)
    assert message(double(tmp_path), own).startswith(f"{own}:14:1: rule two-is-three proved two distinct constants ")


@pytest.mark.conformance
def test_rules_that_do_it_together_are_named(tmp_path: Path) -> None:
    own = rules(tmp_path, ZERO, HARMLESS, ONE)
    assert message(difference(tmp_path), own).startswith(f"{own}:21:1: rule one and {own}:7:1: rule zero proved ")


def test_a_sound_rule_passes(tmp_path: Path) -> None:
    optimise(difference(tmp_path), rules(tmp_path, HARMLESS))


@pytest.mark.conformance
def test_the_command_line_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, own = double(tmp_path), rules(tmp_path, WRONG)
    arguments = ["optimize", source, tmp_path / "out.onnx", "--rules", own, "--trust-rules", "--quiet"]
    code = main(list(map(str, arguments)))  # quiet, for a slow machine prints progress
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (4, 1)
    assert "rule two-is-three proved two distinct constants equal" in error
    assert not (tmp_path / "out.onnx").exists()


# --- single classes


FLOAT = TensorType("float32", (3,))
V, W = ENode("Weight", ("v",), ()), ENode("Weight", ("w",), ())


def constant(*nodes: ENode, type_: TensorType = FLOAT) -> EClass:
    return EClass(nodes, type_, True)


def conflict_of(folder: Path, *classes: EClass, deadline: float = inf, **weights: ArrayLike) -> Conflict | None:
    """The conflict in an e-graph of these classes."""
    identity = read(save_model(folder, "float32", [helper.make_node("Identity", ["x"], ["y"])]))
    saturation = Saturation("saturated", 1, (), 0.0, ())
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    return find_conflict(identity, Knowledge({}, arrays, frozenset()), EGraph(classes, {}, (), saturation), deadline)


def binary(op: str, *operands: int) -> ENode:
    return ENode(op, (), operands)


def test_two_stored_constants(tmp_path: Path) -> None:
    assert conflict_of(tmp_path, constant(V, W), v=[1.0, 2, 3], w=[1.0, 2, 4]) is not None


def test_constant_expressions(tmp_path: Path) -> None:
    classes = constant(V), constant(W), constant(binary("Add", 0, 1), binary("Mul", 0, 1))
    conflict_ = conflict_of(tmp_path, *classes, v=[2.0, 2, 2], w=[2.0, 2, 3])
    assert str(conflict_) == "(Mul v w) is 6.0 at [2], (Add v w) is 5.0 at [2]"


def test_equal_expressions_agree(tmp_path: Path) -> None:
    classes = constant(V), constant(W), constant(binary("Add", 0, 1), binary("Add", 1, 0))
    assert conflict_of(tmp_path, *classes, v=[2.0, 2, 2], w=[0.1, 2, 3]) is None


def test_rounding_of_stored_constants_is_no_conflict(tmp_path: Path) -> None:
    third = np.full(3, 1 / 3)
    assert conflict_of(tmp_path, constant(V, W), v=third, w=third.astype(np.float32)) is None


def test_what_large_operands_leave_of_a_sum_is_no_conflict(tmp_path: Path) -> None:
    """w - v for two of about 1e7, computed in float32 and in float64."""
    v, w = np.array([1.0, 2.0, 3.0]) * 1e7 / 3, np.array([1.0, 2.0, 3.0]) * 1e7 / 3 + 0.1
    rounded = ENode("Weight", ("r",), ())
    classes = constant(V), constant(W), constant(binary("Sub", 1, 0), rounded)
    r = w.astype(np.float32) - v.astype(np.float32)
    assert conflict_of(tmp_path, *classes, v=v, w=w, r=r) is None


def test_a_step_at_its_edge_is_no_conflict(tmp_path: Path) -> None:
    """floor(v) where v is 1, but for rounding."""
    one = ENode("Weight", ("one",), ())
    classes = constant(V), constant(binary("Floor", 0), one)
    assert conflict_of(tmp_path, *classes, v=[1 - 1e-9] * 3, one=[1.0] * 3) is None


def test_infinity_is_no_conflict(tmp_path: Path) -> None:
    assert conflict_of(tmp_path, constant(V, W), v=[np.inf, 1.0, np.nan], w=[1e38, 1.0, 2.0]) is None


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_integers_and_truth_values_are_exact(dtype: str, tmp_path: Path) -> None:
    v, w = np.array([1, 0, 2**40]).astype(dtype), np.array([1, 1, 2**40]).astype(dtype)
    assert conflict_of(tmp_path, constant(V, W, type_=TensorType(dtype, (3,))), v=v, w=w) is not None


def test_large_constants_are_not_computed(tmp_path: Path) -> None:
    large = TensorType("float32", (2**17,))
    v = np.arange(2**17, dtype=np.float32)
    classes = constant(V, type_=large), constant(binary("Add", 0, 0), binary("Mul", 0, 0), type_=large)
    assert conflict_of(tmp_path, *classes, v=v) is None


def test_nothing_is_computed_after_the_deadline(tmp_path: Path) -> None:
    """Else the distinct weights of one class would be a conflict."""
    distinct = {"v": [1.0, 2.0, 3.0], "w": [1.0, 2.0, 4.0]}
    assert conflict_of(tmp_path, constant(V, W), **distinct) is not None
    with pytest.raises(OutOfTime):
        conflict_of(tmp_path, constant(V, W), deadline=0.0, **distinct)
