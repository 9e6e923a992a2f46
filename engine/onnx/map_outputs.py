"""Outputs that are lists of dictionaries: a classifier of scikit-learn ends with a ZipMap, which gives each row of its
scores as a dictionary from class to score.

onnx-ir reads no maps, and a dictionary is nothing to rewrite or to compile. So a model is read without the ZipMap and
with its operand as the output, and gets the ZipMap back when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.message import Message
from onnx_ir import serde

ML_DOMAIN = "ai.onnx.ml"
_KEY = "eqfuse.map_outputs"
"""In the notes on a graph in memory (`ir.Graph.meta`), which copies of it have, too."""
_LABELS = ("classlabels_int64s", "classlabels_strings")


@dataclass(frozen=True)
class MapOutput:
    """An output that a ZipMap makes, and the output that a model in memory has in its place: the ZipMap's operand.

    `place` is its number among the outputs, `opset` the version of ZipMap's domain; `is_added`: the operand is no
    output of its own.
    """

    declared: onnx.ValueInfoProto
    place: int
    node: onnx.NodeProto
    opset: int
    is_added: bool

    @property
    def tensor(self) -> str:
        """The operand of the ZipMap."""
        return str(self.node.input[0])

    def __str__(self) -> str:
        labels = [str(each) for each in _labels(self.node)]
        columns = ", ".join(labels if len(labels) <= 6 else (*labels[:3], "...", labels[-1]))
        return (
            f"{self.declared.name!r} is a list of dictionaries; its numbers are output {self.tensor!r}, a column for "
            f"each class: {columns}"
        )


def take_map_outputs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[MapOutput, ...]]:
    """The model with tensors in the place of the outputs that ZipMaps make; itself if it has none.

    The message is not checked yet, so a ZipMap of another form stays, and the checks of the format refuse its output.
    """
    makers = {node.output[0]: node for node in model.graph.node if _is_zip_map(node)}
    read = {name for node in model.graph.node for name in node.input}
    names = {output.name for output in model.graph.output}
    opset = next((each.version for each in model.opset_import if each.domain == ML_DOMAIN), 1)
    maps: dict[str, MapOutput] = {}
    for place, output in enumerate(model.graph.output):
        if output.name in makers and output.name not in read:
            node = makers[output.name]
            maps[output.name] = MapOutput(output, place, node, opset, node.input[0] not in names)
            names.add(node.input[0])
    if not maps:
        return model, ()
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    for output in graph.output:
        if output.name in maps and maps[output.name].is_added:
            output.CopyFrom(onnx.helper.make_tensor_value_info(maps[output.name].tensor, onnx.TensorProto.FLOAT, None))
    _keep(graph.output, [output for output in graph.output if output.name not in maps])
    _keep(graph.node, [node for node in graph.node if not maps.keys() & node.output])
    return result, tuple(maps.values())


def note_map_outputs(graph: ir.Graph, maps: Sequence[MapOutput]) -> None:
    """Keep them beside the graph in memory."""
    if maps:
        graph.meta[_KEY] = tuple(maps)


def map_outputs(graph: ir.Graph) -> tuple[MapOutput, ...]:
    """The outputs that the graph's file has as dictionaries, those whose tensors are outputs of the graph."""
    outputs = {value.name for value in graph.outputs}
    noted: tuple[MapOutput, ...] = graph.meta.get(_KEY, ())
    return tuple(each for each in noted if each.tensor in outputs)


def to_message(model: ir.Model) -> onnx.ModelProto:
    """The model as a message, with the ZipMaps of its outputs. Weights in external data stay there."""
    message: onnx.ModelProto = serde.serialize_model(model)
    return_maps(message, map_outputs(model.graph))
    return message


def return_maps(message: onnx.ModelProto, maps: Sequence[MapOutput]) -> None:
    """Give a message the ZipMaps back, each output in its place."""
    if not maps:
        return
    added = {each.tensor for each in maps if each.is_added}
    outputs = [output for output in message.graph.output if output.name not in added]
    for each in maps:
        outputs.insert(each.place, each.declared)
    _keep(message.graph.output, outputs)
    message.graph.node.extend(each.node for each in maps)
    if all(each.domain != ML_DOMAIN for each in message.opset_import):
        message.opset_import.append(onnx.helper.make_opsetid(ML_DOMAIN, maps[0].opset))


def _is_zip_map(node: onnx.NodeProto) -> bool:
    is_plain = (node.domain, node.op_type, len(node.input), len(node.output)) == (ML_DOMAIN, "ZipMap", 1, 1)
    return is_plain and bool(_labels(node))


def _labels(node: onnx.NodeProto) -> Sequence[int | str]:
    """The classes, in the order of the columns."""
    found = next((each for each in node.attribute if each.name in _LABELS), onnx.AttributeProto())
    return [*found.ints, *(label.decode(errors="replace") for label in found.strings)]


def _keep(field: Any, messages: Sequence[Message]) -> None:
    """Let a repeated field hold these messages alone."""
    copies = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(copies)
