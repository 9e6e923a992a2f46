"""Models of one or a few nodes to cut into tiles, tiles of them, and what ONNX Runtime says of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.typing import tensor_type
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.dsa.network.boxes import Box, hull, shape_of, whole
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.tiles.compiled_kernels import RuntimeTile
from eqfuse.lowering.dsa.tiles.local_graph import Tile

from ...onnx_runtime import outputs_of

Array = np.ndarray[Any, Any]
X = (2, 4, 9, 8)
U8 = np.uint8


@dataclass(frozen=True)
class Layer:
    """A model of one layer. `stored` are its constants; inputs are called x0, x1, ..., floats or, if it is of bytes,
    integers so small that no product saturates anywhere."""

    nodes: tuple[onnx.NodeProto, ...]
    shapes: tuple[tuple[int, ...], ...]
    stored: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 17
    of_bytes: bool = False

    @cached_property
    def proto(self) -> onnx.ModelProto:
        kind = onnx.TensorProto.UINT8 if self.of_bytes else onnx.TensorProto.FLOAT
        ports = [helper.make_tensor_value_info(f"x{i}", kind, s) for i, s in enumerate(self.shapes)]
        made = [o for node in self.nodes for o in node.output]
        untyped = self.nodes[0].op_type == "GroupNormalization"  # ONNX infers no type for it
        given = helper.make_tensor_value_info(made[0], onnx.TensorProto.FLOAT, self.shapes[0])
        results = [given if untyped else helper.make_empty_tensor_value_info(o) for o in made]
        constants = [numpy_helper.from_array(array, name) for name, array in self.stored.items()]
        graph = helper.make_graph(list(self.nodes), "layer", ports, results, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    @cached_property
    def network(self) -> Network:
        model = read(self.proto)
        graph = operator_graph(model, infer(model))
        declared = {o.name: tensor_type(o.type) for o in self.proto.graph.output}
        values = (v if v.type is not None else replace(v, type=declared.get(v.name)) for v in graph.values)
        return Network(OperatorGraph(graph.operators, tuple(values)))

    @cached_property
    def values(self) -> dict[str, Array]:
        """Everything, by name."""
        random = np.random.default_rng(0)
        feeds: dict[str, Array] = {f"x{i}": random.random(s, np.float32) + 0.5 for i, s in enumerate(self.shapes)}
        if self.of_bytes:
            feeds = {name: random.integers(0, 16, array.shape, np.uint8) for name, array in feeds.items()}
        names = [o.name for o in self.proto.graph.output]
        return {**self.stored, **feeds, **dict(zip(names, outputs_of(self.proto, feeds, as_written=True), strict=True))}


def part(array: Array, box: Box) -> Array:
    return np.asarray(array[tuple(slice(*i) for i in box)])


def assert_tile_is_part(
    network: Network, tile: Tile, graph: OperatorGraph, values: Mapping[str, Array], opset: int
) -> None:
    """The tile's graph in ONNX Runtime makes the parts of the whole values."""
    name = {v: network.graph.values[v].name for v, _ in (*tile.inputs, *tile.outputs)}
    operands = [part(values[name[v]], box) for v, box in tile.inputs]
    for (value, box), found in zip(tile.outputs, RuntimeTile(graph, opset)(operands), strict=True):
        expected = part(values[name[value]], box)
        assert found.shape == expected.shape == shape_of(box)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


@st.composite
def boxes(draw: st.DrawFn, shape: Sequence[int]) -> Box:
    """A part of a tensor."""
    bounds = [sorted(draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))) for n in shape]
    return tuple((a, b + 1) for a, b in bounds)


@st.composite
def tiles(draw: st.DrawFn, network: Network, members: tuple[int, ...]) -> Tile:
    """A tile that makes parts of one or several results that a layer makes, with more at hand than it needs or not."""
    made = [v for m in members for v in network.graph.operators[m].outputs]
    ends = [v for v in made if network.graph.values[v].is_output or not set(network.graph.consumers[v]) <= set(members)]
    chosen = draw(st.lists(st.sampled_from(ends), min_size=1, max_size=2, unique=True))
    outputs = tuple((v, draw(boxes(network.shapes[v]))) for v in chosen)
    needed = network.needs(members, dict(outputs))
    inputs = [v for v in needed if v not in made]
    more = draw(st.booleans())
    found = []
    for value in sorted(inputs):
        box = hull(needed[value], draw(boxes(network.shapes[value]))) if more else needed[value]
        assert box is not None
        found.append((value, box))
    return Tile(members, tuple(found), outputs)


def all_of(network: Network, members: tuple[int, ...], value: int) -> Tile:
    """The tile that makes a whole value from whole operands."""
    needed = network.needs(members, {value: whole(network.shapes[value])})
    made = {v for m in members for v in network.graph.operators[m].outputs}
    inputs = tuple((v, whole(network.shapes[v])) for v in sorted(needed) if v not in made)
    return Tile(members, inputs, ((value, whole(network.shapes[value])),))


def one(
    op: str, *shapes: tuple[int, ...], opset: int = 17, outputs: int = 1, stored: Any = None, **attributes: Any
) -> Layer:
    """A node by itself. `stored` are further inputs, constants, None if one is absent."""
    constants = {f"c{n}": array for n, array in enumerate(stored or ()) if array is not None}
    further = ["" if array is None else f"c{n}" for n, array in enumerate(stored or ())]
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op, [*names, *further], [f"y{n}" for n in range(outputs)], **attributes)
    return Layer((node,), shapes, constants, opset)


def of_bytes(op: str, *shapes: tuple[int, ...], stored: Any, **attributes: Any) -> Layer:
    """A node whose operands are integers of 8 bits, and constant zero points."""
    return replace(one(op, *shapes, stored=stored, **attributes), of_bytes=True)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*shape: int) -> Array:
    return np.random.default_rng(1).random(shape, np.float32) + 0.5


def _pool(kind: str, kernel: int, stride: int, pads: tuple[int, ...], **attributes: Any) -> Layer:
    return one(kind, X, opset=19, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=list(pads), **attributes)


def _resize(scales: tuple[float, ...], mode: str = "nearest", **attributes: Any) -> Layer:
    return one("Resize", (2, 2, 9, 12), stored=[None, np.array(scales, np.float32)], mode=mode, **attributes)


LAYERS: dict[str, Layer] = {
    "Relu": one("Relu", X),
    "Add broadcast": one("Add", X, (4, 1, 8)),
    "Max": one("Max", X, (9, 1)),
    "Clip": one("Clip", X, stored=[np.float32(0.6), np.float32(0.9)]),
    "Max of three": one("Max", X, (9, 1), (4, 1, 1)),
    "Sum": one("Sum", X, (9, 8), (4, 1, 1)),
    "PRelu": one("PRelu", X, (4, 1, 1)),
    "Cast": one("Cast", X, to=onnx.TensorProto.INT32),
    "Gelu": one("Gelu", X, opset=20),
    "Conv": one("Conv", X, (6, 4, 3, 3), (6,), pads=[1, 1, 1, 1], strides=[2, 1]),
    "Conv of large pads": one("Conv", X, (6, 4, 3, 3), pads=[0, 3, 0, 1]),
    "dilated Conv": one("Conv", X, (6, 4, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3]),
    "grouped Conv": one("Conv", X, (12, 2, 3, 3), (12,), group=2, pads=[0, 1, 2, 1]),
    "groups of three": one("Conv", (2, 8, 5, 5), (12, 2, 3, 3), (12,), group=4, pads=[1] * 4),
    "depthwise": one("Conv", X, (8, 1, 3, 3), (8,), group=4, pads=[1] * 4),
    "auto_pad": one("Conv", X, (6, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 3]),
    "ConvInteger": of_bytes("ConvInteger", X, (6, 4, 3, 3), stored=[U8(3), U8(2)], pads=[1, 1, 1, 1], strides=[2, 1]),
    "ConvInteger in groups": of_bytes("ConvInteger", X, (6, 2, 3, 3), stored=[U8(3)], group=2, pads=[0, 1, 2, 1]),
    "MatMulInteger": of_bytes("MatMulInteger", (2, 3, 5, 6), (6, 4), stored=[U8(3), np.arange(4, dtype=U8)]),
    "1-D Conv": one("Conv", (2, 4, 9), (6, 4, 3), pads=[2, 0]),
    "ConvTranspose, windows side by side": one("ConvTranspose", X, (4, 6, 2, 2), (6,), strides=[2, 2]),
    "ConvTranspose, windows that overlap": one("ConvTranspose", X, (4, 6, 3, 3), strides=[2, 2], pads=[1, 0, 0, 1]),
    "ConvTranspose": one("ConvTranspose", X, (4, 3, 3, 3), (6,), group=2, strides=[2, 2], pads=[1, 0, 0, 1]),
    "MaxPool": _pool("MaxPool", 3, 2, (1, 1, 1, 1)),
    "MaxPool ceil": _pool("MaxPool", 3, 2, (0, 1, 0, 1), ceil_mode=1),
    "MaxPool with indices": _pool("MaxPool", 2, 2, (0, 0, 0, 0)),
    "AveragePool": _pool("AveragePool", 3, 2, (1, 1, 1, 1)),
    "AveragePool with pads": _pool("AveragePool", 3, 2, (1, 1, 1, 1), count_include_pad=1),
    "AveragePool ceil": _pool("AveragePool", 3, 2, (0, 0, 1, 1), ceil_mode=1),
    "AveragePool dilated": _pool("AveragePool", 3, 1, (1, 2, 1, 2), dilations=[2, 2]),
    "GlobalAveragePool": one("GlobalAveragePool", X),
    "GlobalMaxPool": one("GlobalMaxPool", X),
    "MatMul": one("MatMul", (2, 3, 5, 6), (3, 6, 4)),
    "broadcast MatMul": one("MatMul", (1, 3, 5, 6), (2, 1, 6, 4)),
    "MatMul vector": one("MatMul", (3, 5, 6), (6,)),
    "vector MatMul": one("MatMul", (6,), (3, 6, 5)),
    "Gemm": one("Gemm", (5, 6), (6, 4), (4,), alpha=0.5),
    "transposed Gemm": one("Gemm", (6, 5), (4, 6), (5, 1), transA=1, transB=1, beta=2.0),
    "ReduceMean": one("ReduceMean", (2, 3, 4, 5), axes=[1, 3], keepdims=0),
    "ReduceMax": one("ReduceMax", (2, 3, 4, 5), axes=[-1]),
    "ReduceSum": one("ReduceSum", (2, 3, 4, 5)),
    "ReduceL2": one("ReduceL2", (2, 3, 4, 5), axes=[0]),
    "ArgMax": one("ArgMax", (2, 3, 4), axis=1),
    "CumSum": one("CumSum", (3, 4), stored=[np.array(1, np.int64)], exclusive=1),
    "Softmax": one("Softmax", (2, 3, 4), axis=1),
    "Softmax of old": one("Softmax", (2, 3, 4), opset=11, axis=1),
    "LogSoftmax": one("LogSoftmax", (2, 3, 4), axis=-1),
    "LayerNormalization": one("LayerNormalization", (2, 3, 4), (4,), (4,)),
    "LayerNormalization over two": one("LayerNormalization", (2, 3, 4), (3, 4), (4,), axis=1),
    "InstanceNormalization": one("InstanceNormalization", X, (4,), (4,)),
    "GroupNormalization": one("GroupNormalization", X, (4,), (4,), opset=21, num_groups=2),
    "BatchNormalization": one("BatchNormalization", X, (4,), (4,), (4,), (4,)),
    "LRN": one("LRN", X, size=3),
    "Transpose": one("Transpose", (2, 3, 4, 5), perm=[2, 0, 3, 1]),
    "Reshape": one("Reshape", (4, 6, 5), stored=[ints(2, 12, 5)]),
    "Reshape of all": one("Reshape", (4, 6), stored=[ints(8, 3)]),
    "Reshape heads": one("Reshape", (2, 5, 12), stored=[ints(2, 5, 3, 4)]),
    "Flatten": one("Flatten", (2, 3, 4), axis=2),
    "Squeeze": one("Squeeze", (2, 1, 4, 1), stored=[ints(1, 3)]),
    "Unsqueeze": one("Unsqueeze", (2, 3), stored=[ints(1)]),
    "Identity": one("Identity", X),
    "Dropout": one("Dropout", X),
    "Expand": one("Expand", (3, 1), stored=[ints(2, 3, 4)]),
    "Tile": one("Tile", (3, 4), stored=[ints(2, 3)]),
    "Slice": one("Slice", (9, 11), stored=[ints(1, -9), ints(8, 11), ints(0, 1), ints(2, 3)]),
    "Slice back": one("Slice", (6, 9), stored=[ints(1, -2), ints(5, 0), ints(0, 1), ints(2, -3)]),
    "Split": one("Split", (6, 9), outputs=2, stored=[ints(4, 5)], axis=1),
    "Concat": one("Concat", (2, 3), (2, 4), (2, 1), axis=1),
    "Concat of one twice": Layer((helper.make_node("Concat", ["x0", "x1", "x0"], ["y"], axis=0),), ((2, 3), (1, 3))),
    "Gather": one("Gather", (6, 5), stored=[np.array([[1, -1, 0], [2, 2, 5]])], axis=0),
    "Gather columns": one("Gather", (3, 6, 5), stored=[ints(4, 1, 0)], axis=1),
    "Pad": one("Pad", (3, 4), stored=[ints(1, 0, 2, 3), np.float32(7)]),
    "Pad less": one("Pad", (5, 6), stored=[ints(-1, 2, 3, -2)]),
    "reflected": one("Pad", (5, 4), mode="reflect", stored=[ints(2, 0, 1, 0)]),
    "DepthToSpace": one("DepthToSpace", (2, 8, 3, 4), blocksize=2),
    "DepthToSpace CRD": one("DepthToSpace", (2, 8, 3, 4), blocksize=2, mode="CRD"),
    "SpaceToDepth": one("SpaceToDepth", (2, 2, 4, 6), blocksize=2),
    "nearest up": _resize((1, 1, 2, 3)),
    "nearest floor": _resize((1, 1, 2, 3), coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    "nearest down": _resize((1, 1, 1 / 3, 0.5)),
    "linear up": _resize((1, 1, 2, 2), "linear"),
    "linear by 3/2": _resize((1, 1, 1.5, 1.5), "linear", coordinate_transformation_mode="pytorch_half_pixel"),
    "linear down": _resize((1, 1, 1 / 3, 0.25), "linear"),
    "linear to corners": _resize((1, 1, 2, 1.5), "linear", coordinate_transformation_mode="align_corners"),
    "cubic up": _resize((1, 1, 2, 1), "cubic"),
    "cubic down": _resize((1, 1, 1 / 3, 0.5), "cubic"),
    "Resize to sizes": one("Resize", (2, 2, 5, 6), stored=[None, None, ints(2, 2, 13, 9)], mode="linear"),
}
