"""``optimize --save-intermediate``: the model after each stage."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.verification import verify
from eqfuse.support.errors import UsageError

from ..cli.command_line import CommandLine


def chain(folder: Path) -> Path:
    """A Relu that is there twice, in front of a Reshape whose target is computed from a shape."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Reshape", ["b", "s"], ["y"]),
    ]
    return CommandLine(folder, None).model("in.onnx", nodes, (2, 3))


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_each_stage_leaves_a_model_that_computes_the_same(tmp_path: Path) -> None:
    model, folder = chain(tmp_path), tmp_path / "stages"
    result = optimize_model(model, None, Options(save_intermediate=folder, partition="joint", as_functions=True))
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["1-read.onnx", "2-infer.onnx", "3-decode.onnx", "4-summarize.onnx"]
    assert operators(files[0]) == ["Relu", "Relu", "Shape", "Reshape"]
    assert operators(files[2]) == ["Relu"]
    assert onnx.load(files[3]).functions == result.proto.functions
    assert all(verify(model, onnx.load(path)).status == "passed" for path in files)


def test_shapes_of_the_options_are_those_of_the_first_stage(tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    optimize_model(chain(tmp_path), None, Options(save_intermediate=folder, input_shapes={"x": (5, 3)}, verify=False))
    (x,) = onnx.load(folder / "1-read.onnx").graph.input
    assert [dimension.dim_value for dimension in x.type.tensor_type.shape.dim] == [5, 3]


@pytest.mark.parametrize(
    ("folder", "message"),
    [("none/stages", "none/stages: the folder none does not exist"), ("in.onnx", "in.onnx: cannot be a folder")],
)
def test_folders_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        optimize_model(chain(tmp_path), None, Options(save_intermediate=Path(folder)))


def test_a_stage_does_not_replace_the_input(tmp_path: Path) -> None:
    chain(tmp_path).rename(tmp_path / "1-read.onnx")
    with pytest.raises(UsageError, match="is the input itself"):
        optimize_model(tmp_path / "1-read.onnx", None, Options(save_intermediate=tmp_path))
