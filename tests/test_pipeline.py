"""The whole path on small models: nodes that stay, constants that are folded, models that are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqfuse
from eqfuse.engine.egraph.saturate import UnsoundRuleError
from eqfuse.engine.onnx.model import read, write
from eqfuse.errors import ModelError, RuleError, UsageError, VerificationError

RECORD = """\
; {formula}
; @property {property}
; @sound real
; @requires none
; @source derived
; @example {left} => {right}
(rewrite {left} {right} :ruleset explore :name "{name}")
"""


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, Any] = {},
    shape: Sequence[int | str] = (2, 3),
    opset: int = 17,
    output: str = "y",
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A float model with one input ``x`` and one output."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def save(made: onnx.ModelProto, folder: Path, name: str = "in.onnx") -> Path:
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


def run(path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def rule(folder: Path, name: str, left: str, right: str, property_: str = "identity") -> Path:
    path = folder / f"{name}.egg"
    text = RECORD.format(formula="made up", property=property_, left=left, right=right, name=name)
    path.write_text(text, encoding="utf-8")
    return path


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


def test_writing_over_the_input_is_refused(tmp_path: Path) -> None:
    source = save(conv_with_norm(), tmp_path)
    with pytest.raises(UsageError, match="the input itself"):
        eqfuse.optimize(source, source)


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


def test_an_older_opset_is_refused() -> None:
    with pytest.raises(UsageError, match="already uses opset 17"):
        eqfuse.optimize(conv_with_norm(), opset=13)


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
    weights = {"q": np.ones((3, 4), np.int8), "scale": np.float32(0.1), "zero": np.int8(0)}
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


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"", "empty"), (b"\xff" * 99, "not an ONNX file"), (b"hello, world", "not an ONNX")],
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read(path)


def test_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(conv_with_norm().SerializeToString()[:200])
    with pytest.raises(ModelError, match=r"cut short|malformed|holds no graph"):
        read(path)


def test_missing_external_data(tmp_path: Path) -> None:
    onnx.save(conv_with_norm(), tmp_path / "in.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"w\.bin"):
        read(tmp_path / "in.onnx")


def test_a_model_that_fails_the_checker() -> None:
    with pytest.raises(ModelError, match="checker"):
        eqfuse.optimize(model([helper.make_node("Relu", ["nothing"], ["y"])]))


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onnx_ir.save", full)
    with pytest.raises(ModelError, match="No space left"):
        write(read(conv_with_norm()), tmp_path / "out.onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_unsound_rule_is_caught_by_verification(tmp_path: Path) -> None:
    bad = rule(tmp_path, "wrong", "(Exp x)", "(Relu x)")
    source = save(model([helper.make_node("Exp", ["x"], ["y"])]), tmp_path)
    with pytest.raises(VerificationError, match="differs from the original"):
        eqfuse.optimize(source, tmp_path / "out.onnx", rules=(bad,), trust_rules=True)
    assert not (tmp_path / "out.onnx").exists()


def test_an_unsound_rule_is_caught_by_its_shapes(tmp_path: Path) -> None:
    bad = rule(tmp_path, "shapes", "(ReduceSum x a k)", "x")
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"])]
    with pytest.raises(UnsoundRuleError, match=r"shapes\.egg:\d+:1: rule shapes united two terms of different shape"):
        eqfuse.optimize(model(nodes, {"axes": np.array([1])}), rules=(bad,), trust_rules=True)


def test_a_rule_file_with_an_unbound_variable_names_the_place(tmp_path: Path) -> None:
    bad = rule(tmp_path, "unbound", "(Exp x)", "(Relu z)")
    with pytest.raises(RuleError, match=r"unbound\.egg:\d+:\d+"):
        eqfuse.optimize(conv_with_norm(), rules=(bad,))


@pytest.mark.conformance
def test_a_runaway_rule_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "runaway.egg"
    rules = [
        ("swap", "(Add a b)", "(Add b a)"),
        ("left", "(Add a (Add b c))", "(Add (Add a b) c)"),
        ("right", "(Add (Add a b) c)", "(Add a (Add b c))"),
    ]
    text = "".join(
        RECORD.format(formula="f", property="associative", left=left, right=right, name=f"run-{name}")
        for name, left, right in rules
    )
    path.write_text(text, encoding="utf-8")
    nodes = [helper.make_node("Sin" if i % 2 else "Cos", ["x" if i < 2 else f"t{i - 2}"], [f"t{i}"]) for i in range(24)]
    total = "t0"
    for i in range(1, 24):
        nodes.append(helper.make_node("Add", [total, f"t{i}"], [f"s{i}"]))
        total = f"s{i}"
    nodes.append(helper.make_node("Identity", [total], ["y"]))
    result = eqfuse.optimize_with_result(model(nodes), rules=(path,), trust_rules=True, node_limit=1500, time_limit=3.0)
    assert result.saturation.stop_reason in ("node limit", "time limit")
    assert result.verification is not None
    assert result.verification.status == "passed"


def test_exact_precision_is_bit_identical(tmp_path: Path) -> None:
    source = save(conv_with_norm(), tmp_path)
    eqfuse.optimize(source, tmp_path / "out.onnx", precision="exact")
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    first, second = (
        ort.InferenceSession(p, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for p in (source, tmp_path / "out.onnx")
    )
    np.testing.assert_array_equal(first, second)


def two_branches() -> onnx.ModelProto:
    """y = relu(exp(x)), z = neg(w) + y; the input u is used by nobody."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
        helper.make_node("Neg", ["w"], ["n"]),
        helper.make_node("Add", ["n", "y"], ["z"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xwu"]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "yz"]
    graph = helper.make_graph(nodes, "branches", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("outputs", "inputs", "nodes"),
    [
        (("y",), ["x", "u"], ["Exp"]),
        (("e",), ["x", "u"], ["Exp"]),
        (("n", "y"), ["x", "w", "u"], ["Exp", "Neg"]),
        (("z",), ["x", "w", "u"], ["Exp", "Sub"]),
    ],
)
def test_only_the_given_outputs_are_computed(
    tmp_path: Path, outputs: tuple[str, ...], inputs: list[str], nodes: list[str]
) -> None:
    """An input goes with the last node that reads it; one that nobody read stays."""
    result = eqfuse.optimize(save(two_branches(), tmp_path), tmp_path / "out.onnx", outputs=outputs)
    written = onnx.load(tmp_path / "out.onnx")
    assert [value.name for value in written.graph.output] == list(outputs)
    assert [value.name for value in written.graph.input] == inputs
    assert sorted(node.op_type for node in written.graph.node) == nodes
    assert result.verification is not None
    assert result.verification.status == "passed"
    onnx.checker.check_model(written, full_check=True)


@pytest.mark.parametrize(
    ("name", "advice"), [("yy", "did you mean y?"), ("nothing", "it has y, z"), ("x", "it has y, z")]
)
def test_a_wrong_output_is_refused(name: str, advice: str) -> None:
    with pytest.raises(UsageError, match=rf"^--outputs: branches computes no value '{name}'; {re.escape(advice)}$"):
        eqfuse.optimize(two_branches(), outputs=name)
