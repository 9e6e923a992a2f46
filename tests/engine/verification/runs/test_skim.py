"""The structure of a file without its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqfuse.engine.verification.runs.skim import has_data, read_structure

from ...models import convnet, model, normal, value


def save(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


def test_small_model_is_read_whole(tmp_path: Path) -> None:
    assert read_structure(save(convnet(), tmp_path)) == convnet()


def test_large_weights_keep_type_and_dims_only(tmp_path: Path) -> None:
    original = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 300])], ["y"], {"w": normal(300, 300)}
    )
    weight = read_structure(save(original, tmp_path)).graph.initializer[0]
    assert (list(weight.dims), weight.data_type, has_data(weight)) == ([300, 300], onnx.TensorProto.FLOAT, False)


@pytest.mark.parametrize("inside_body", [False, True])
def test_large_constants_are_left_out(inside_body: bool, tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(normal(300, 300)))
    body = helper.make_graph([constant], "body", [], [value("c", None)])
    branch = helper.make_node("If", ["flag"], ["c"], then_branch=body, else_branch=body)
    original = model([branch if inside_body else constant], [], ["c"], {"flag": np.asarray(True)})
    structure = read_structure(save(original, tmp_path))
    assert structure.ByteSize() < 2000
    assert [node.op_type for node in structure.graph.node] == [original.graph.node[0].op_type]


def test_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = save(convnet(), tmp_path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="ends early"):
        read_structure(path)
