"""Damage to how a model hangs together: names, edges, order, bodies, functions, versions. In place, all of it."""

from __future__ import annotations

from random import Random

import onnx
from onnx import AttributeProto, ModelProto, TensorProto, ValueInfoProto, helper

from .sites import INTEGERS, NAMES, chosen, graphs_of, nodes_of, tensors_of, values_of

_OPERATORS = (
    "Add", "Mul", "Relu", "MatMul", "Conv", "Reshape", "Transpose", "Concat", "Split", "Slice", "Gather", "Cast",
    "Shape", "Softmax", "Identity", "Dropout", "Loop", "If", "Scan", "Constant", "ConstantOfShape", "Resize", "Einsum",
    "TopK", "BatchNormalization", "Where", "Pad", "Squeeze", "Unsqueeze", "OneHot", "Range", "Tile", "Expand", "Trilu",
    "LSTM", "GatherND", "ScatterND", "NonZero", "Unique", "Optional", "SequenceAt", "DepthToSpace", "QuantizeLinear",
    "Attention", "NoSuchOperator", "",
)  # fmt: skip
_DEPTH = 30
"""Messages that hold each other may be 100 deep in protobuf; a node with a body takes three."""


def rename_a_value(model: ModelProto, random: Random) -> None:
    """Everywhere, so that the model is as right as the name is."""
    node = random.choice(nodes_of(model))
    old = chosen([*node.input, *node.output], random)
    new = random.choice(NAMES)
    for other in nodes_of(model):
        other.input[:] = [new if name == old else name for name in other.input]
        other.output[:] = [new if name == old else name for name in other.output]
    named: list[ValueInfoProto | TensorProto] = [*values_of(model), *tensors_of(model)]
    for item in named:
        if item.name == old:
            item.name = new


def rename_a_node(model: ModelProto, random: Random) -> None:
    node = random.choice(nodes_of(model))
    setattr(node, random.choice(("name", "op_type", "domain", "doc_string", "overload")), random.choice(NAMES))


def break_a_reference(model: ModelProto, random: Random) -> None:
    node = random.choice([node for node in nodes_of(model) if node.input] or nodes_of(model))
    if node.input:
        node.input[random.randrange(len(node.input))] = random.choice(NAMES)


def name_two_values_alike(model: ModelProto, random: Random) -> None:
    one, other = random.choice(nodes_of(model)), random.choice(nodes_of(model))
    if one.output and other.output:
        one.output[random.randrange(len(one.output))] = other.output[0]


def make_a_cycle(model: ModelProto, random: Random) -> None:
    nodes = model.graph.node
    early = random.randrange(len(nodes))
    late = random.randrange(early, len(nodes))
    if nodes[early].input:
        nodes[early].input[random.randrange(len(nodes[early].input))] = nodes[late].output[0]


def shuffle_nodes(model: ModelProto, random: Random) -> None:
    graph = random.choice(list(graphs_of(model.graph)))
    nodes = list(graph.node)
    random.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def shuffle_operands(model: ModelProto, random: Random) -> None:
    node = random.choice(nodes_of(model))
    operands = list(node.input)
    random.shuffle(operands)
    node.input[:] = operands


def change_the_number_of_operands(model: ModelProto, random: Random) -> None:
    node = random.choice(nodes_of(model))
    names = random.choice((node.input, node.output))
    if names and random.random() < 0.5:
        names.pop()
    else:
        names.extend([names[0] if names else "", *[""] * random.randrange(3)])


def exchange_an_operator(model: ModelProto, random: Random) -> None:
    random.choice(nodes_of(model)).op_type = random.choice(_OPERATORS)


def replace_an_operator_with_another(model: ModelProto, random: Random) -> None:
    one, other = random.choice(nodes_of(model)), random.choice(nodes_of(model))
    one.op_type = other.op_type
    if random.random() < 0.5:
        del one.attribute[:]
        one.attribute.extend(other.attribute)


def change_the_ends_of_a_graph(model: ModelProto, random: Random) -> None:
    graph = random.choice(list(graphs_of(model.graph)))
    values = random.choice((graph.input, graph.output))
    match random.randrange(4):
        case 0 if values:
            values.pop()
        case 1 if values:
            values.append(values[0])
        case 2:
            values.add(name=random.choice((*NAMES, *(o for node in graph.node for o in node.output))))
        case _:
            swapped = list(graph.input)[:1]
            graph.output.extend(swapped)


def capture_a_missing_name(model: ModelProto, random: Random) -> None:
    """Bodies refer to values that nothing computes, or that are computed after them."""
    inner = [node for graph in graphs_of(model.graph) if graph is not model.graph for node in graph.node]
    node = chosen([node for node in inner if node.input], random)
    if node is None:
        node = model.graph.node.add(op_type="If", input=["flag"], output=["captured"])
        body = helper.make_graph([helper.make_node("Relu", ["nowhere"], ["t"])], "b", [], [ValueInfoProto(name="t")])
        node.attribute.append(helper.make_attribute("then_branch", body))
        node.attribute.append(helper.make_attribute("else_branch", body))
    else:
        last = model.graph.node[-1].output
        node.input[random.randrange(len(node.input))] = random.choice(("nowhere", last[0] if last else "x"))


def change_opset_imports(model: ModelProto, random: Random) -> None:
    imports = model.opset_import
    match random.randrange(5):
        case 0:
            del imports[:]
        case 1 if imports:
            imports[random.randrange(len(imports))].version = random.choice((*INTEGERS, 5, 9, 12, 20, 28, 29))
        case 2:
            imports.add(
                domain=random.choice(("", "ai.onnx", "com.microsoft")), version=random.choice((1, 9, 22, 2**40))
            )
        case 3:
            imports.add(domain=random.choice(NAMES), version=1)
        case _ if imports:
            imports.append(imports[0])


def change_the_opset(model: ModelProto, random: Random) -> None:
    """To one in which operators have other attributes and operands."""
    for entry in model.opset_import:
        if entry.domain == "":
            entry.version = random.randrange(1, 29)


def change_the_header(model: ModelProto, random: Random) -> None:
    match random.randrange(4):
        case 0:
            model.ir_version = random.choice((*INTEGERS[2:], 13, 14, 99))
        case 1:
            model.graph.name = random.choice(NAMES)
        case 2:
            model.producer_name = model.domain = model.doc_string = random.choice(NAMES)
        case _:
            model.model_version = random.choice(INTEGERS)


def add_metadata(model: ModelProto, random: Random) -> None:
    keys = (*NAMES, "eqfuse", "eqfuse.precision", "eqfuse.group", "eqfuse.partition", "eqfuse.device", "pkg.onnx")
    for holder in (model, model.graph, *model.graph.node):
        if random.random() < 0.7:
            key = random.choice(keys)
            holder.metadata_props.add(key=key, value=random.choice((*NAMES, "exact", "{}", "[1", "10" * 20, "-1")))


def damage_functions(model: ModelProto, random: Random) -> None:
    """They call themselves, lack their bodies or names, or there are two of them."""
    if not model.functions:
        body = [helper.make_node("Relu", ["a"], ["b"])]
        opsets = [helper.make_opsetid("", 17)]
        model.functions.append(helper.make_function("own", "fn", ["a"], ["b"], body, opsets))
        first = model.graph.node[0]
        model.graph.node[0].CopyFrom(
            helper.make_node("fn", list(first.input)[:1], list(first.output)[:1], domain="own")
        )
        if not any(entry.domain == "own" for entry in model.opset_import):
            model.opset_import.add(domain="own", version=1)
    function = random.choice(model.functions)
    match random.randrange(8):
        case 0:
            call = helper.make_node(function.name, list(function.input), list(function.output), domain=function.domain)
            function.node.insert(0, call)
        case 1:
            other = random.choice(model.functions)
            function.node[0].op_type, function.node[0].domain = other.name, other.domain
        case 2:
            del function.node[:]
        case 3:
            model.functions.append(function)
        case 4:
            del function.opset_import[:]
        case 5:
            setattr(function, random.choice(("name", "domain")), random.choice(NAMES))
        case 6:
            random.choice((function.input, function.output)).append(random.choice((*NAMES, *function.input)))
        case _:
            function.node[0].attribute.add(name="axis", ref_attr_name="missing", type=AttributeProto.INT)


def nest_deeply(model: ModelProto, random: Random) -> None:
    """Branches in branches, or types of sequences of sequences."""
    if random.random() < 0.5:
        body = helper.make_graph([helper.make_node("Relu", ["x"], ["deep"])], "b", [], [ValueInfoProto(name="deep")])
        for _ in range(random.choice((3, 20, _DEPTH))):
            node = helper.make_node("If", ["flag"], ["deep"], then_branch=body, else_branch=body.__class__())
            body = helper.make_graph([node], "b", [], [ValueInfoProto(name="deep")])
        model.graph.node.extend(body.node)
    else:
        type_ = random.choice(values_of(model)).type
        for _ in range(random.choice((2, 10, 40))):
            outer = onnx.TypeProto()
            random.choice((outer.sequence_type, outer.optional_type)).elem_type.CopyFrom(type_)
            type_.CopyFrom(outer)


def lengthen(model: ModelProto, random: Random) -> None:
    """A long chain of one operator behind an output, and sizes that grow along it."""
    operator = random.choice(("Identity", "Neg", "Relu", "Concat", "Add", "Transpose", "Dropout"))
    last = model.graph.output[0].name
    for index in range(random.choice((6, 12))):
        operands = [last, last] if operator in ("Concat", "Add") else [last]
        node = helper.make_node(operator, operands, [f"long{index}"])
        if operator == "Concat":
            node.attribute.append(helper.make_attribute("axis", 0))
        model.graph.node.append(node)
        last = f"long{index}"
    type_ = model.graph.output[0].type.tensor_type.elem_type
    model.graph.output.add(name=last).type.tensor_type.elem_type = type_


def empty_a_graph(model: ModelProto, random: Random) -> None:
    graph = random.choice(list(graphs_of(model.graph)))
    for field in random.choice((["node"], ["input"], ["output"], ["initializer"], ["node", "initializer"])):
        graph.ClearField(field)


def duplicate_parts(model: ModelProto, random: Random) -> None:
    graph = random.choice(list(graphs_of(model.graph)))
    parts = random.choice((graph.node, graph.initializer, graph.input, graph.output, graph.value_info))
    if parts:
        parts.append(random.choice(parts))


GRAPH_DAMAGES = (
    rename_a_value, rename_a_node, break_a_reference, name_two_values_alike, make_a_cycle, shuffle_nodes,
    shuffle_operands, change_the_number_of_operands, exchange_an_operator, replace_an_operator_with_another,
    change_the_ends_of_a_graph, capture_a_missing_name, change_opset_imports, change_the_opset, change_the_header,
    add_metadata, damage_functions, nest_deeply, lengthen, empty_a_graph, duplicate_parts,
)  # fmt: skip
"""Each damages a model in place."""
