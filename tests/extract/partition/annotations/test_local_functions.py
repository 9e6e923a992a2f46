"""Groups as local functions: valid, with the results of the nodes they hold, and the same graph when inlined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import inliner

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.engine.choices import PartitionMethod
from eqfuse.engine.onnx.model import Model, read, write
from eqfuse.engine.onnx.nodes import layer_nodes
from eqfuse.engine.onnx.provenance import GROUP_KEY
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.extract.partition.annotations.annotate import read_partition
from eqfuse.extract.partition.annotations.local_functions import DIGEST_KEY, DOMAIN, as_functions, inline_functions
from eqfuse.extract.partition.groups import Partition, PartitionError, partition_of
from eqfuse.extract.partition.search.methods import partition_by
from eqfuse.extract.partition.templates.kernels import KernelModel
from eqfuse.support.errors import ModelError

from ....properties import examples

MANY_KINDS = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
graph (float[2, 4] x, bool flag) => (float[2, 2] early, float[2, 4] y, float[2, 4] last)
<int64[2] sizes = {2, 2}, float high = {0.5}, float[2, 4] f>
{
    two = Constant <value_float = 2.0> ()
    [square] a = Mul(x, x)
    [scale] b = Mul(a, two)
    [halve] early, rest = Split <axis = 1> (b, sizes)
    [limit] c = Clip(rest, , high)
    [drop] d, mask = Dropout(c)
    [join] e = Concat <axis = 1> (early, d)
    [foreign] f = com.microsoft.Gelu(e)
    [branch] g = If (flag) <
        then_branch = yes () => (float[2, 4] r) { r = Add(f, b) },
        else_branch = no () => (float[2, 4] r) { r = Neg(f) }
    >
    y = Sub(g, x)
    [root] last = Sqrt(a)
    [dead] unused = Exp(a)
}
"""
"""A value used twice, by name the same as an output; an operand left out; two outputs; one output of the graph inside;
a foreign operator; a body; a node without a name; one that nobody reads."""

BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[2, 3] x) => (float[2, 3] y) {
    a = Relu(x)
    b = Exp(a)
    c = Relu(b)
    y = Exp(c)
}
"""

KNOWN_SHAPE = """
<ir_version: 8, opset_import: ["" : 17]>
graph (float[2, 3] x) => (float[2, 3] y) {
    a = Relu(x)
    b = Exp(a)
    shape = Shape(b)
    c = Reshape(b, shape)
    y = Neg(c)
}
"""
"""That Reshape reads `shape` is not in the operator graph: what it holds is known."""

Results = list[NDArray[np.generic]]


def parsed(text: str) -> Model:
    return read(onnx.parser.parse_model(text))


def cut(model: Model, *labels: int) -> Partition:
    return partition_of(operator_graph(model, infer(model)), labels, "none")


def proto(model: Model) -> onnx.ModelProto:
    return ir.to_proto(model.ir)


@dataclass(frozen=True)
class Structure:
    """A graph but for names: its nodes, each told by its operator, attributes and operands, and its outputs."""

    nodes: tuple[str, ...]
    outputs: tuple[str, ...]


def structure(model: onnx.ModelProto) -> Structure:
    graph = model.graph
    made = {i.name: f"input {i.name}" for i in graph.input}
    made |= {i.name: f"constant {i.SerializeToString(deterministic=True).hex()}" for i in graph.initializer}
    nodes = [_digest(node, made) for node in graph.node]
    return Structure(tuple(sorted(nodes)), tuple(made[output.name] for output in graph.output))


def _digest(node: onnx.NodeProto, made: dict[str, str]) -> str:
    attributes = sorted(_attribute(a, made) for a in node.attribute)
    operands = [made[name] if name else "" for name in node.input]
    digest = sha256(repr((node.domain, node.op_type, attributes, operands, len(node.output))).encode()).hexdigest()
    made.update({name: f"{digest} {place}" for place, name in enumerate(node.output)})
    return digest


def _attribute(attribute: onnx.AttributeProto, made: Mapping[str, str]) -> str:
    if attribute.type != onnx.AttributeProto.GRAPH:
        content: bytes = attribute.SerializeToString(deterministic=True)
        return content.hex()
    inside = dict(made)
    return f"{attribute.name} {[_digest(node, inside) for node in attribute.g.node]}"


def results(model: onnx.ModelProto) -> Results:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds = {i.name: generator.random(i.shape).astype(np.float32) for i in session.get_inputs() if i.shape}
    feeds |= {i.name: np.asarray(True) for i in session.get_inputs() if not i.shape}
    return list(session.run(None, feeds))


def check(model: Model, made: Model) -> None:
    """Valid, of equal results, and the same graph when inlined, by ONNX and here."""
    onnx.checker.check_model(proto(made), full_check=True)
    for expected, found in zip(results(proto(model)), results(proto(made)), strict=True):
        np.testing.assert_array_equal(expected, found)
    assert structure(inliner.inline_local_functions(proto(made))) == structure(proto(model))
    assert structure(proto(inline_functions(made))) == structure(proto(model))


@examples(12)
@given(st.lists(st.integers(0, 2), min_size=11, max_size=11))
def test_any_groups_make_a_valid_model_that_inlines_back(steps: list[int]) -> None:
    model = parsed(MANY_KINDS)
    graph = operator_graph(model, infer(model))
    labels: list[int] = []
    for sources, operator, step in zip(graph.predecessors, graph.operators, steps, strict=True):
        least = max((labels[source] + (graph.operators[source].op == "If") for source in sources), default=0)
        labels.append(least + (100 if operator.op == "If" else step))
    check(model, as_functions(model, partition_of(graph, labels, "none")))


@pytest.mark.representatives(2)
@pytest.mark.parametrize("method", ["joint", "ago", "dnnfusion", "fuseops", "none"])
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_real_models(name: str, method: PartitionMethod) -> None:
    model = read(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx")
    graph = operator_graph(model, infer(model))
    partition = partition_by(method, graph, KernelModel(graph, load_device(DEFAULT_DEVICE)), 0.5)
    made = as_functions(model, partition)
    assert len(made.ir.functions) == sum(len(members) > 1 for members in partition.members)
    check(model, made)


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        (BRANCHES, (0, 0, 1, 2), ["group_0_Relu_Exp", "Relu", "Exp"]),
        (KNOWN_SHAPE, (0, 0, 0, 0, 0), ["group_0_Relu_Exp_Shape_Reshape_and_1_more"]),
        # A group that could not run at once becomes several functions.
        (KNOWN_SHAPE, (0, 0, 1, 0, 0), ["group_0_Relu_Exp", "Shape", "group_0_Reshape_Neg"]),
    ],
)
def test_each_group_of_several_nodes_is_a_call_and_the_model_given_stays(
    text: str, labels: tuple[int, ...], expected: list[str]
) -> None:
    model = parsed(text)
    before = proto(model).SerializeToString(deterministic=True)
    made = as_functions(model, cut(model, *labels))
    assert [node.op_type for node in made.graph] == expected
    assert {node.domain for node in made.graph if node.op_type.startswith("group")} == {DOMAIN}
    assert proto(model).SerializeToString(deterministic=True) == before
    check(model, made)


def test_names_metadata_values_and_domains_are_kept_and_constants_are_inputs() -> None:
    model = parsed(MANY_KINDS)
    model.graph[1].metadata_props["scope"] = "encoder"
    made = as_functions(model, cut(model, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5))
    first, second = made.ir.functions.values()
    assert [node.name for node in first] == ["square", "scale", "halve", "limit", "drop"]
    assert first[0].metadata_props == {"scope": "encoder", GROUP_KEY: "0"}
    assert [value.name for value in first.inputs] == ["x", "two", "sizes", "high"]
    assert [value.name for value in first.outputs] == ["a", "b", "early", "d"]
    assert second.opset_imports == {"": 17, "com.microsoft": 1}
    assert made.graph.initializers.keys() == model.graph.initializers.keys()


def test_linked_constants_are_in_the_functions_that_read_them_and_inline_back() -> None:
    model = parsed(MANY_KINDS)
    partition = cut(model, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5)
    made = as_functions(model, partition, link_constants=True)
    first, _ = made.ir.functions.values()
    assert [value.name for value in first.inputs] == ["x"]
    assert sorted(node.op_type for node in first)[:3] == ["Clip", "Constant", "Constant"]
    assert not made.graph.initializers
    onnx.checker.check_model(proto(made), full_check=True)
    for expected, found in zip(results(proto(model)), results(proto(made)), strict=True):
        np.testing.assert_array_equal(expected, found)
    whole = inline_functions(made)
    recorded = read_partition(whole, operator_graph(whole, infer(whole)))
    assert recorded is not None
    assert recorded.members == partition.members


def test_equal_groups_have_the_same_digest() -> None:
    model = parsed(BRANCHES)
    made = as_functions(model, cut(model, 0, 0, 1, 1))
    first, second = (function.metadata_props[DIGEST_KEY] for function in made.ir.functions.values())
    assert first == second


def test_functions_of_one_name_are_told_apart() -> None:
    text = KNOWN_SHAPE.replace("a = Relu(x)", "a = Reshape(x, same)").replace("b = Exp(a)", "b = Neg(a)")
    model = parsed(text.replace("y)", "y) <int64[2] same = {2, 3}>"))
    made = as_functions(model, cut(model, 0, 0, 1, 0, 0))
    names = [node.op_type for node in made.graph]
    assert names == ["group_0_Reshape_Neg", "Shape", "group_0_Reshape_Neg_2"]
    check(model, made)


def test_nodes_that_nobody_reads_stay() -> None:
    model = parsed(MANY_KINDS.replace("[dead] unused = Exp(a)", "[dead] unused = Exp(a) unused2 = Neg(unused)"))
    made = as_functions(model, cut(model, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10))
    assert not made.ir.functions
    check(model, made)


def test_a_body_is_no_part_of_a_function() -> None:
    model = parsed(MANY_KINDS)
    with pytest.raises(PartitionError, match=r"^group 7: node 'branch' runs a body, so it must be a group of its own$"):
        as_functions(model, cut(model, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9))


@pytest.mark.parametrize(("before", "after"), [(3, 8), (7, 8), (8, 8), (10, 10)])
def test_the_ir_version_is_raised_where_functions_need_it(before: int, after: int) -> None:
    model = parsed(BRANCHES.replace("ir_version: 8", f"ir_version: {before}"))
    assert as_functions(model, cut(model, 0, 0, 1, 1)).ir.ir_version == after


def test_a_raised_ir_version_makes_no_constant_replaceable() -> None:
    text = """
    <ir_version: 3, opset_import: ["" : 9]>
    graph (float[2, 3] x, float[1] w) => (float[2, 3] y) <float[1] w = {2.0}> { a = Add(x, w) y = Relu(a) }
    """
    model = parsed(text)
    made = as_functions(model, cut(model, 0, 0))
    assert [value.name for value in made.graph.inputs] == ["x"]
    assert not made.overridable_initializers
    np.testing.assert_array_equal(results(proto(made))[0], results(proto(model))[0])


def test_inlining_gives_back_names_and_partition(tmp_path: Path) -> None:
    model = parsed(MANY_KINDS)
    partition = cut(model, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6)
    write(as_functions(model, partition), tmp_path / "functions.onnx")
    back = inline_functions(read(tmp_path / "functions.onnx"))
    found = read_partition(back, operator_graph(back, infer(back)))
    assert found is not None
    assert found.group == partition.group
    assert [n.name for n in layer_nodes(back) if n.name] == [n.name for n in layer_nodes(model) if n.name]
    assert DOMAIN not in back.ir.opset_imports


def test_a_model_without_such_functions_is_inlined_as_itself() -> None:
    model = parsed(BRANCHES)
    assert inline_functions(model) is model


@pytest.mark.parametrize(("version", "kept"), [(17, []), (16, ["twice"])])
def test_functions_are_inlined_where_versions_agree(version: int, kept: list[str]) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    graph (float[2, 3] x) => (float[2, 3] y) {{ a = Relu(x) b = Exp(a) y = local.twice(b) }}
    <domain: "local", opset_import: ["" : {version}]> twice (v) => (w) {{ w = Add(v, v) }}
    """
    model = parsed(text)
    made = as_functions(model, cut(model, 0, 0, 1))
    onnx.checker.check_model(proto(made), full_check=True)
    inlined = inline_functions(made)
    assert [name for _, name, _ in inlined.ir.functions] == kept
    assert ("local" in inlined.ir.opset_imports) == bool(kept)
    assert [node.op_type for node in inlined.graph] == ["Relu", "Exp", *(kept or ["Add"])]


def test_a_function_that_calls_itself_is_refused() -> None:
    model = parsed(BRANCHES)
    made = as_functions(model, cut(model, 0, 0, 1, 1))
    (function, *_) = made.ir.functions.values()
    function[0].domain, function[0].op_type = DOMAIN, function.name
    function.opset_imports[DOMAIN] = made.ir.opset_imports[DOMAIN]
    with pytest.raises(ModelError, match=r"^graph: .*[Cc]ycl"):
        inline_functions(made)
