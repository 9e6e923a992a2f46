"""Models whose outputs are lists of dictionaries, as classifiers of scikit-learn are exported."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqfuse import load, optimize
from eqfuse.driver.compiler.compile import compile_model
from eqfuse.driver.compiler.options import CompileOptions
from eqfuse.engine.onnx.map_outputs import map_outputs
from eqfuse.engine.onnx.model import read, write

CLASSES: dict[str, list[Any]] = {
    "classlabels_int64s = [3, 0, 7]": [3, 0, 7],
    'classlabels_strings = ["b", "a", "c"]': ["b", "a", "c"],
}


def classifier(labels: str = "classlabels_int64s = [3, 0, 7]", outputs: str = "dictionaries, y") -> onnx.ModelProto:
    """Scores of three classes as dictionaries; `outputs` are some of dictionaries, scores and y, in any order."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        agraph (float[N, 3] x) => (float[N, 3] y) {{
            doubled = Add (x, x)
            scores = Softmax <axis = -1> (doubled)
            dictionaries = ai.onnx.ml.ZipMap <{labels}> (scores)
            y = Add (scores, x)
        }}""")
    dictionaries = onnx.ValueInfoProto(name="dictionaries")
    mapping = dictionaries.type.sequence_type.elem_type.map_type
    mapping.key_type = onnx.TensorProto.INT64 if "int64" in labels else onnx.TensorProto.STRING
    mapping.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    made = {
        "dictionaries": dictionaries,
        "y": model.graph.output[0],
        "scores": onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["N", 3]),
    }
    kept = [onnx.ValueInfoProto.FromString(made[name].SerializeToString()) for name in outputs.split(", ")]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model


def run(model: onnx.ModelProto | Path, x: np.ndarray) -> dict[str, Any]:
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True))


X_OF_FIVE = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@settings(deadline=None, max_examples=8)
@given(
    st.sampled_from(sorted(CLASSES)),
    st.sets(st.sampled_from(["scores", "y"])).flatmap(lambda others: st.permutations(["dictionaries", *others])),
)
def test_a_written_model_has_its_dictionaries_in_their_place(labels: str, outputs: list[str]) -> None:
    model = classifier(labels, ", ".join(outputs))
    before = model.SerializeToString()
    read_model = read(model)
    assert not any(node.op_type == "ZipMap" for node in read_model.graph)
    assert model.SerializeToString() == before
    result = optimize(model, verify=False)
    assert [output.name for output in result.graph.output] == outputs
    expected, computed = run(model, X_OF_FIVE), run(result, X_OF_FIVE)
    assert [*expected] == [*computed]
    for row, other in zip(expected["dictionaries"], computed["dictionaries"], strict=True):
        assert {*row} == {*other} == {*CLASSES[labels]}
        np.testing.assert_allclose([row[each] for each in other], [*other.values()], rtol=1e-6)


def test_dictionaries_survive_a_file_with_external_weights(tmp_path: Path) -> None:
    source, target = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(classifier(), source)
    written = write(read(source), target, external=True)
    assert written.path == target
    assert [*run(target, X_OF_FIVE)] == ["dictionaries", "y"]
    assert run(target, X_OF_FIVE)["dictionaries"] == run(source, X_OF_FIVE)["dictionaries"]


def test_compiled_code_gives_the_tensor_of_a_dictionary(tmp_path: Path) -> None:
    onnx.save(classifier(), tmp_path / "a.onnx")
    compiled = compile_model(tmp_path / "a.onnx", tmp_path / "bundle", CompileOptions(threads=1, measure=False))
    assert compiled.manifest.provenance.stand_ins == (
        "'dictionaries' is a list of dictionaries; its numbers are output 'scores', a column for each class: 3, 0, 7",
    )
    outputs = load(tmp_path / "bundle").run({"x": X_OF_FIVE})
    rows = run(tmp_path / "a.onnx", X_OF_FIVE)["dictionaries"]
    expected = [[row[label] for label in (3, 0, 7)] for row in rows]
    assert [*outputs] == ["scores", "y"]
    np.testing.assert_allclose(outputs["scores"], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["dictionaries", "scores"])
def test_an_output_is_kept_by_either_of_its_names(name: str) -> None:
    result = optimize(classifier(), outputs=(name,), verify=False)
    assert [output.name for output in result.graph.output] == ["dictionaries"]


def test_a_zip_map_that_something_reads_is_refused() -> None:
    model = classifier()
    model.graph.node.append(onnx.helper.make_node("SequenceLength", ["dictionaries"], ["n"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("n", onnx.TensorProto.INT64, []))
    assert map_outputs(read(classifier()).graph)
    with pytest.raises(Exception, match="output 'dictionaries': is a map, and only outputs that a ZipMap makes may be"):
        read(model)
