"""Small networks for an Ethos-U, quantised by ONNX Runtime's tools, and their graphs of TOSA."""

from __future__ import annotations

import logging
from math import prod, sqrt
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from eqfuse.driver.clock import Clock
from eqfuse.driver.compiler.compilation import Compilation
from eqfuse.driver.options import Options
from eqfuse.engine.onnx.model import read
from eqfuse.engine.shapes.inference import infer
from eqfuse.lowering.ethos_u.back_end import translate
from eqfuse.lowering.ethos_u.emission.emit import Emitted

OPSET = 17


class Images(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        generator = np.random.default_rng(1)
        self._feeds = iter([{"x": generator.standard_normal(shape).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def float_model(text: str, shape: tuple[int, ...], weights: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    """A model of nodes in ONNX's text, from x to y, with random weights of these shapes."""
    graph = onnx.parser.parse_graph(f"g (float[{','.join(map(str, shape))}] x) => (float[] y) {{ {text} }}")
    generator = np.random.default_rng(0)
    for name, size in weights.items():
        array = generator.standard_normal(size) / sqrt(max(1, prod(size[1:])))
        graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    graph.output[0].type.tensor_type.ClearField("shape")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def quantised(
    model: onnx.ModelProto, folder: Path, form: QuantFormat = QuantFormat.QDQ, *, signed: bool = True
) -> Path:
    source, target = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(model, source)
    shape = tuple(each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim)
    logging.disable(logging.WARNING)
    quantize_static(
        source, target, Images(shape), quant_format=form, per_channel=True, weight_type=QuantType.QInt8,
        activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    return target


def emitted(path: Path) -> tuple[Emitted, Compilation]:
    """A model as TOSA, as it was written: the plain translation."""
    compilation = Compilation.of(read(path), Options(), Clock(None, None))
    model = compilation.model
    return translate("as exported", model, infer(model), compilation.ports).emitted, compilation


def with_front(path: Path, shape: tuple[int, ...]) -> Path:
    """The model with operators of floats in front of its input x: its input is then raw, and their result an output."""
    model = onnx.load(path)
    model.graph.node.insert(0, helper.make_node("Div", ["moved", "unit"], ["x"], name="scaled"))
    model.graph.node.insert(0, helper.make_node("Sub", ["raw", "unit"], ["moved"], name="moved"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(2.0), "unit"))
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("raw", onnx.TensorProto.FLOAT, shape))
    model.graph.output.append(helper.make_tensor_value_info("moved", onnx.TensorProto.FLOAT, shape))
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def with_tail(path: Path) -> Path:
    """The model with operators behind its output y that the NPU does not have; their result z is an output, too."""
    model = onnx.load(path)
    model.graph.node.append(helper.make_node("Softmax", ["y"], ["shares"], name="shares", axis=1))
    model.graph.node.append(helper.make_node("CumSum", ["shares", "axis"], ["z"], name="sums"))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(1), "axis"))
    model.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path
