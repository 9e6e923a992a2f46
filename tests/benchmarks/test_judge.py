"""The parts of benchmarks/judge.py: damage finds its places, the referee measures it, and runs that ended go on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from eqfuse.benchmarks import judge
from eqfuse.benchmarks.architectures import FORMS, JUDGED, forms_in_turn
from eqfuse.benchmarks.judging.damages import DAMAGES
from eqfuse.benchmarks.judging.referee import Referee
from eqfuse.benchmarks.judging.rows import Alarm, Miss, Results
from eqfuse.benchmarks.judging.wounded import Wounded

PLACES = """<ir_version: 8, opset_import: ["" : 18]>
places (float[1, 4, 6, 6] x, float[4, 1, 8] series, float[3, 4] rows, int64[5] tokens) => (
  float[1, 8, 6, 6] image, float[1, 4, 6, 6] pooled, float[3, 4] table, float found, float[1, 4, 12, 12] large,
  float[4, 1, 1, 3] states, float[3, 4] halves)
<float[8, 4, 3, 3] kernel, float[8] bias, float[4, 4] one, float[4, 4] other, float factor = {3.25},
 float tiny = {1e-5}, float hidden = {-1e9}, float low = {0.5}, float high = {2.5}, int64[1] first = {0},
 int64[1] second = {3}, int64[1] last = {1}, int64 two = {2}, int64[1] axis = {1}, float[1, 12, 8] w, float[1, 12, 3] r,
 bool[4] mask = {1, 0, 1, 1}, float[4] scales = {1, 1, 2, 2}>
{
  convolved = Conv <pads = [1, 1, 1, 1]> (x, kernel, bias)
  image = Relu (convolved)
  pooled = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
  scaled = Mul (rows, factor)
  eased = Add (scaled, tiny)
  hiding = Add (eased, hidden)
  scores = Where (mask, eased, hiding)
  chances = Softmax <axis = 1> (scores)
  product = MatMul (chances, one)
  moved = Gemm (product, other)
  difference = Sub (moved, rows)
  clipped = Clip (difference, low, high)
  turned = Transpose <perm = [1, 0]> (clipped)
  back = Transpose <perm = [1, 0]> (turned)
  joined = Concat <axis = 0> (back, moved)
  part = Slice (joined, first, second, first, last)
  summed = Add (part, back)
  means = ReduceMean (summed, axis)
  less = Greater (summed, means)
  table = Where (less, summed, means)
  rounded = Round (summed)
  halves = Identity (rounded)
  token = Gather (tokens, two)
  number = Cast <to = 1> (token)
  found = If (less_first) <
    then_branch = then () => (float one_way) { one_way = Identity (number) },
    else_branch = otherwise () => (float other_way) { other_way = Neg (number) }>
  large = Resize <mode = "linear"> (x, , scales)
  states, last_state, last_cell = LSTM <hidden_size = 3> (series, w, r)
}
"""


def _model() -> onnx.ModelProto:
    text = PLACES.replace("found = If (less_first)", "flag = Constant <value = bool {1}> ()\n  found = If (flag)")
    model = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    for value in model.graph.value_info:
        drawn = generator.standard_normal([each.dim_value for each in value.type.tensor_type.shape.dim])
        model.graph.initializer.append(onnx.numpy_helper.from_array(drawn.astype(np.float32), value.name))
    return model


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_finds_a_place_and_changes_it(kind: str) -> None:
    before = Wounded(_model()).model.SerializeToString()
    for seed in range(40):
        wounded = Wounded(_model())
        if DAMAGES[kind](wounded, Random(seed)):
            assert wounded.model.SerializeToString() != before
            return
    pytest.fail("no place was found")


def test_damage_of_a_number_is_always_the_same() -> None:
    first, second = Wounded(_model()), Wounded(_model())
    assert DAMAGES["take_stale_operand"](first, Random(3)) == DAMAGES["take_stale_operand"](second, Random(3))
    assert first.model == second.model


SCALED = """<ir_version: 8, opset_import: ["" : 18]>
scaled (float[2] x) => (float[2] y) <float factor = {4}> { y = Mul (x, factor) }"""


def test_referee_measures_a_part_of_the_size_of_an_output() -> None:
    model = onnx.parser.parse_model(SCALED)
    draws: list[Mapping[str, Any]] = [{"x": np.array([1.0, 2.0], np.float32)}]
    damaged = Wounded(model)
    damaged.set_constant("factor", np.asarray(3.0, np.float32))
    effect = Referee(model, draws).measure(damaged.model)
    assert effect is not None
    assert effect.size == pytest.approx(0.25)
    assert effect.measured_in == "float64"


def test_referee_leaves_out_what_gives_another_shape() -> None:
    model = onnx.parser.parse_model(SCALED)
    damaged = Wounded(model)
    damaged.set_constant("factor", np.ones((3, 1), np.float32))
    assert Referee(model, [{"x": np.ones(2, np.float32)}]).measure(damaged.model) is None


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    rows = [
        Alarm("a.ts.free", "compile", 3, "no", 1.0),
        Miss(0, "optimize", "a", "drop", "Mul", 1.0, "float64", "accepted", "", 1.0),
    ]
    for row in rows:
        results.add(row)
    assert list(Results.of(results.path).rows.values()) == rows


def test_what_there_are_results_of_is_not_judged_again(tmp_path: Path) -> None:
    options = judge.parser().parse_args(["--work", str(tmp_path), "--damages", "4"])
    results = Results(tmp_path / "results.jsonl")
    assert len(list(judge.list_damages([], results, options))) == 4
    results.add(Miss(1, "compile", "a", "drop", "Mul", 1.0, "float64", "refused", "", 1.0))
    assert len(list(judge.list_damages([], results, options))) == 3


def test_only_names_parts_and_subjects(tmp_path: Path) -> None:
    options = judge.parser().parse_args(["--work", str(tmp_path), "--only", "misses", "rtdetr"])
    chosen = [
        judge.is_chosen(options, *each) for each in (("misses", ""), ("alarms", "x-RTDetr.ts"), ("alarms", "vit"))
    ]
    assert chosen == [True, True, False]


def test_architectures_take_all_forms_in_turn() -> None:
    forms = list(forms_in_turn().values())
    assert all(abs(forms.count(form) - len(JUDGED) / len(FORMS)) <= 1 for form in FORMS)


def test_every_architecture_has_a_free_size() -> None:
    assert [name for name, each in JUDGED.items() if not any(entry.free for entry in each.inputs)] == []


@pytest.mark.conformance
def test_shipped_networks_are_judged_rightly(tmp_path: Path) -> None:
    """Damage to five networks; two of them are tried undamaged, too."""
    chosen = ["misses", "squeezenet_56", "bert_tiny"]
    judge.main(["--work", str(tmp_path), "--shipped", "--damages", "20", "--no-measure", "--only", *chosen])
    results = Results.of(tmp_path / "results.jsonl")
    assert [row.is_refused for row in results.alarms] == [False] * 4
    misses = [row for row in results.misses if row.status != "undecided"]
    assert len(misses) == 20
    assert [row for row in misses if row.is_decisive and row.status != "refused"] == []
    assert any(row.is_decisive for row in misses)
