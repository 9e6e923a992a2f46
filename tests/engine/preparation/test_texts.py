"""Models that name classes by text: numbers stand for the texts in compiled code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from eqfuse import load
from eqfuse.driver.compiler.compile import compile_model
from eqfuse.driver.compiler.options import CompileOptions
from eqfuse.engine.onnx.model import Model, read
from eqfuse.engine.preparation.texts import number_texts, text_outputs

LINEAR = '''ai.onnx.ml.LinearClassifier <
    coefficients = [1.0, 0.5, -1.0, 0.25, -0.5, 2.0], intercepts = [0.1, 0.0, -0.1],
    classlabels_strings = ["low", "high", "odd"], post_transform = "SOFTMAX", multi_class = 0> (x)'''
NAMED = {
    "a classifier": f"y, scores = {LINEAR}",
    "a table": '''names = Constant <value_strings = ["low", "high"]> ()
        place = ArgMax <axis = 1, keepdims = 0> (x)
        y = Gather (names, place)''',
    "an extractor and a Reshape": '''names = Constant <value_strings = ["low", "high"]> ()
        place = ArgMax <axis = 1, keepdims = 0> (x)
        taken = ai.onnx.ml.ArrayFeatureExtractor (names, place)
        flat = Constant <value_ints = [-1]> ()
        y = Reshape (taken, flat)''',
    "labels of labels": '''place = ArgMax <axis = 1, keepdims = 0> (x)
        first = ai.onnx.ml.LabelEncoder <keys_int64s = [0], values_strings = ["zero"]> (place)
        y = ai.onnx.ml.LabelEncoder <
            keys_strings = ["zero"], values_strings = ["none"], default_string = "some"> (first)''',
    "a choice": '''word = Constant <value_string = "low"> ()
        other = Constant <value_string = "high"> ()
        sum = ReduceSum <keepdims = 0> (x, axis)
        is_low = Less (sum, zero)
        y = Where (is_low, word, other)''',
}


def named(body: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
        agraph (float[N, 2] x) => (string[M] y) <int64[1] axis = {{1}}, float zero = {{0}}> {{ {body} }}""")
    onnx.checker.check_model(model)
    return model


def run(model: Any, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(["y"], {"x": x})[0]
    return result


@pytest.mark.representatives(2)
@pytest.mark.parametrize("body", NAMED.values(), ids=NAMED)
def test_numbers_stand_for_the_texts_of_an_output(body: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    onnx.save(named(body), tmp_path / "named.onnx")
    options = CompileOptions(threads=1, measure=False, outputs=("y",))
    (line,) = compile_model(tmp_path / "named.onnx", tmp_path / "bundle", options).manifest.provenance.stand_ins
    words = dict(part.split(" ") for part in line.removeprefix("'y' is text; its numbers stand for ").split(", "))
    computed = load(tmp_path / "bundle").run({"x": x})["y"]
    expected = run(named(body), x)
    assert len({*expected}) > 1
    assert [words[str(number)] for number in computed] == [repr(word) for word in expected]


@pytest.mark.parametrize(
    "body",
    [
        "upper = StringNormalizer <case_change_action = \"UPPER\"> (names) y = Identity (upper)",
        "numbers = Cast <to = 1> (names) more = Cast <to = 8> (numbers) y = Identity (more)",
    ],
)
def test_texts_that_are_changed_or_read_stay(body: str) -> None:
    model = read(named(f'names = Constant <value_strings = ["1", "2"]> () {body}'))
    assert number_texts(model) is model


def test_texts_that_a_caller_gives_stay() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (string[N] x) => (string[N] y) { y = Identity (x) }'
    )
    assert number_texts(given := read(model)) is given


def test_a_model_without_texts_is_the_same() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[N] x) => (float[N] y) { y = Relu (x) }'
    )
    result: Model = number_texts(given := read(model))
    assert result is given
    assert not text_outputs(result.graph)
