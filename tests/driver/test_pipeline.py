"""The whole path on small models: nodes that stay, constants that are folded, files that stay as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqfuse
from eqfuse.support.errors import VerificationError

from ..engine.models import model as build
from ..engine.models import value
from ..onnx_runtime import outputs_of


def model(
    nodes: Sequence[onnx.NodeProto], weights: Mapping[str, Any] = {}, shape: Sequence[int | str] = (2, 3)
) -> onnx.ModelProto:
    """A float model with one input ``x`` and one output ``y``."""
    return build(nodes, [value("x", shape)], ["y"], weights)


def save(made: onnx.ModelProto, folder: Path, name: str = "in.onnx") -> Path:
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


def run(path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return outputs_of(path, {"x": x})[0]


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def conv_with_norm() -> onnx.ModelProto:
    generator = np.random.default_rng(0)
    weights = {
        "w": generator.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "scale": generator.uniform(0.5, 1.5, 4).astype(np.float32),
        "shift": generator.standard_normal(4).astype(np.float32),
        "mean": generator.standard_normal(4).astype(np.float32),
        "variance": generator.uniform(0.5, 1.5, 4).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"], name="last"),
    ]
    return model(nodes, weights, (1, 3, 8, 8))


def test_batch_normalization_goes_into_the_convolution(tmp_path: Path) -> None:
    source = save(conv_with_norm(), tmp_path)
    result = eqfuse.optimize(source, tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == ["Conv", "Relu"]
    assert result.verification is not None
    assert result.verification.status == "passed"
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "out.onnx", x), run(source, x), rtol=1e-4, atol=1e-5)


def test_the_input_file_is_not_changed(tmp_path: Path) -> None:
    source = save(conv_with_norm(), tmp_path)
    before = source.read_bytes()
    eqfuse.optimize(source, tmp_path / "out.onnx")
    assert source.read_bytes() == before


def test_kept_nodes_keep_their_names(tmp_path: Path) -> None:
    eqfuse.optimize(save(conv_with_norm(), tmp_path), tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx").graph.node[-1].name == "last"


def test_opset_ir_version_and_metadata_stay(tmp_path: Path) -> None:
    made = conv_with_norm()
    made.doc_string = "what it is"
    made.metadata_props.add(key="author", value="somebody")
    eqfuse.optimize(save(made, tmp_path), tmp_path / "out.onnx")
    out = onnx.load(tmp_path / "out.onnx")
    assert (out.ir_version, out.opset_import[0].version, out.doc_string) == (8, 17, "what it is")
    found = {p.key: p.value for p in out.metadata_props}
    assert (found["author"], found["eqfuse.precision"]) == ("somebody", "real")


def test_old_files_list_new_weights_as_inputs(tmp_path: Path) -> None:
    made = conv_with_norm()
    made.ir_version = 3
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8]))
    made.graph.input.extend(
        helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)) for w in made.graph.initializer
    )
    eqfuse.optimize(save(made, tmp_path), tmp_path / "out.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_symbolic_dimensions_stay_symbolic(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Relu", ["r"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    made = model(nodes, {"shape": np.array([0, -1])}, ("batch", 3, 2))
    result = eqfuse.optimize(save(made, tmp_path), tmp_path / "out.onnx")
    assert result.after.layers == 2
    assert onnx.load(tmp_path / "out.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert run(tmp_path / "out.onnx", np.ones((5, 3, 2), np.float32)).shape == (5, 6)


def test_input_shapes_can_be_overridden() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], shape=("batch", 3))
    result = eqfuse.optimize_with_result(made, input_shapes={"x": (4, 3)})
    assert list(result.model.graph.inputs[0].shape or ()) == [4, 3]


def test_a_newer_opset_allows_newer_operators(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Div", ["x", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["a"]),
        helper.make_node("Mul", ["x", "a"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["y"]),
    ]
    weights = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    source = save(model(nodes, weights), tmp_path)
    eqfuse.optimize(source, tmp_path / "out.onnx", opset=20)
    assert operators(tmp_path / "out.onnx") == ["Gelu"]
    assert onnx.load(tmp_path / "out.onnx").opset_import[0].version == 20


def test_common_subexpressions_are_one() -> None:
    nodes = [helper.make_node("Exp", ["x"], [n]) for n in ("a", "b")] + [helper.make_node("Div", ["a", "b"], ["y"])]
    result = eqfuse.optimize_with_result(model(nodes), skip=("identities", "arithmetic", "strength"))
    assert result.after.operators["Exp"] == 1


def test_random_operators_are_not_merged() -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], [n]) for n in ("a", "b")]
    nodes.append(helper.make_node("Sub", ["a", "b"], ["y"]))
    assert eqfuse.optimize_with_result(model(nodes), verify=False).after.operators["RandomNormalLike"] == 2


def test_an_unknown_operator_is_kept_as_it_is(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Mystery", ["b"], ["y"], domain="vendor", level=7),
    ]
    made = model(nodes)
    made.opset_import.add(domain="vendor", version=1)
    with pytest.raises(VerificationError, match=r"cannot be loaded: .*Mystery.* --no-verify does without"):
        eqfuse.optimize(save(made, tmp_path), tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    eqfuse.optimize(save(made, tmp_path), tmp_path / "out.onnx", verify=False)
    kept = onnx.load(tmp_path / "out.onnx").graph.node
    assert [n.op_type for n in kept] == ["Relu", "Mystery"]
    assert kept[1].attribute[0].i == 7


def test_bodies_follow_values_of_the_outer_scope(tmp_path: Path) -> None:
    branch = [
        helper.make_graph([helper.make_node(op, ["b"], ["o"])], op, [], [helper.make_empty_tensor_value_info("o")])
        for op in ("Neg", "Abs")
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    source = save(model(nodes, {"zero": np.float32(0)}), tmp_path)
    eqfuse.optimize(source, tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx").count("Relu") == 1
    for sign in (1, -1):
        x = sign * np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(run(tmp_path / "out.onnx", x), run(source, x))


def test_quantized_weights_stay_quantized(tmp_path: Path) -> None:
    weights = {"q": np.arange(12, dtype=np.int8).reshape(3, 4), "scale": np.float32(0.1), "zero": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    eqfuse.optimize(save(model(nodes, weights), tmp_path), tmp_path / "out.onnx")
    assert operators(tmp_path / "out.onnx") == ["DequantizeLinear", "MatMul"]


def test_folding_does_not_blow_up_a_file(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Expand", ["row", "shape"], ["wide"]),
        helper.make_node("Add", ["x", "wide"], ["y"]),
    ]
    weights = {"row": np.arange(10_000, dtype=np.float32), "shape": np.array([400, 10_000])}
    source = save(model(nodes, weights, (400, 10_000)), tmp_path)
    eqfuse.optimize(source, tmp_path / "out.onnx", verify=False)
    assert (tmp_path / "out.onnx").stat().st_size <= 1.01 * source.stat().st_size


def test_a_small_file_may_grow_by_a_few_bytes() -> None:
    """The Slice that is as good as the second Gather takes some bytes more: this makes no other choice worse."""
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["row"]),
        helper.make_node("Gather", ["x", "second"], ["rows"]),
        helper.make_node("Add", ["row", "rows"], ["y"]),
    ]
    result = eqfuse.optimize_with_result(model(nodes, {"first": np.array(-2), "second": np.array([-1])}, (4, 3)))
    assert result.after.layers == 3
    assert result.after.predicted <= result.before.predicted


def test_external_data_stays_external(tmp_path: Path) -> None:
    made = conv_with_norm()
    onnx.save(made, tmp_path / "in.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    eqfuse.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").exists()
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "out.onnx", x), run(tmp_path / "in.onnx", x), rtol=1e-4, atol=1e-5)


def test_output_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    source = save(conv_with_norm(), tmp_path)
    script = "import sys, eqfuse; eqfuse.optimize(sys.argv[1], sys.argv[2], verify=False)"
    found = set()
    for seed in ("0", "1", "2"):
        out = tmp_path / f"{seed}.onnx"
        path = os.pathsep.join(p for p in sys.path if p)
        subprocess.run(
            [sys.executable, "-c", script, source, out],
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
        )
        found.add(out.read_bytes())
    assert len(found) == 1


def test_exact_precision_is_bit_identical(tmp_path: Path) -> None:
    source = save(conv_with_norm(), tmp_path)
    eqfuse.optimize(source, tmp_path / "out.onnx", precision="exact")
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    first, second = (outputs_of(path, {"x": x}, as_written=True)[0] for path in (source, tmp_path / "out.onnx"))
    np.testing.assert_array_equal(first, second)
