"""A small CNN and a small transformer as ONNX models, and what ONNX Runtime makes of them sample by sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from eqfuse.driver.compiler.accelerator import AcceleratorKernels
from eqfuse.driver.compiler.compilation import kernels_of
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.lowering.base.weights import Weights

from ..small_models import model

Array = np.ndarray[Any, Any]


def _weights(*shape: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    return np.asarray(generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)


def cnn(batch: int = 2) -> onnx.ModelProto:
    """Three convolutions, one of them beside a residual, and a classifier."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w3"], ["e"]),
        helper.make_node("Add", ["e", "d"], ["f"]),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("Gemm", ["h", "w4"], ["y"], transB=1),
    ]
    shapes = {"w1": (8, 3, 3, 3), "w2": (16, 8, 3, 3), "w3": (16, 16, 1, 1), "w4": (10, 16)}
    stored = {name: _weights(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    return model(nodes, {"x": (batch, 3, 12, 12)}, {"y": (batch, 10)}, **stored)


def up_sampling(channels: int = 32) -> onnx.ModelProto:
    """Pooling, and transposed convolutions back to the size before, as in a U-Net."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("ConvTranspose", ["d", "w3", "b3"], ["e"], strides=[2, 2]),
        helper.make_node("Concat", ["a", "e"], ["f"], axis=1),
        helper.make_node("Conv", ["f", "w4"], ["y"], pads=[1] * 4),
    ]
    shapes = {"w1": (channels, 3, 3, 3), "w2": (2 * channels, channels, 3, 3), "w3": (2 * channels, channels, 2, 2)}
    shapes |= {"b3": (channels,), "w4": (4, 2 * channels, 3, 3)}
    stored = {name: _weights(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    return model(nodes, {"x": (1, 3, 16, 16)}, {"y": (1, 4, 16, 16)}, **stored)


def transformer(batch: int = 1, length: int = 8, width: int = 16) -> onnx.ModelProto:
    """An embedding, attention of two heads, and a normalised residual."""
    heads = [0, 0, 2, width // 2]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        *(helper.make_node("MatMul", ["x", f"w{part}"], [f"{part}0"]) for part in "qkv"),
        *(helper.make_node("Reshape", [f"{part}0", "heads"], [f"{part}1"]) for part in "qkv"),
        helper.make_node("Transpose", ["q1"], ["q"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["k1"], ["k"], perm=[0, 2, 3, 1]),
        helper.make_node("Transpose", ["v1"], ["v"], perm=[0, 2, 1, 3]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o0"]),
        helper.make_node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["o1", "rows"], ["o"]),
        helper.make_node("Add", ["o", "x"], ["r"]),
        helper.make_node("LayerNormalization", ["r", "gain"], ["y"], axis=-1),
    ]
    stored = {f"w{part}": _weights(width, width, seed=seed) for seed, part in enumerate("qkv")}
    stored |= {"table": _weights(32, width, seed=5), "gain": np.ones(width, np.float32)}
    stored |= {"heads": np.array(heads), "rows": np.array([0, 0, width])}
    return model(nodes, {"ids": (batch, length)}, {"y": (batch, length, width)}, ["ids"], **stored)


def class_token(batch: int = 2, *, alike: bool = True) -> onnx.ModelProto:
    """A token before the rows of each sample, and queries: constants with rows for each sample, `alike` or not."""
    nodes = [
        helper.make_node("Concat", ["token", "x"], ["rows"], axis=1),
        helper.make_node("MatMul", ["rows", "w"], ["keys"]),
        helper.make_node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "keys"], ["y"]),
    ]
    stored = {"w": _weights(8, 8, seed=1)}
    for seed, (name, rows) in enumerate({"token": 1, "queries": 3}.items()):
        own = _weights(batch, rows, 8, seed=seed)
        stored[name] = np.repeat(own[:1], batch, axis=0) if alike else own
    return model(nodes, {"x": (batch, 4, 8)}, {"y": (batch, 3, 8)}, **stored)


def scheduled_parts(source: onnx.ModelProto) -> tuple[Any, Any, Weights]:
    """The graph and fused layers of a model that the rules were not applied to, and its constants."""
    options = Options(verify=False, iterations=1, partition="fuseops", intensive=False)
    result = optimize_model(source, None, options, lowering=AcceleratorKernels())
    return *kernels_of(result), Weights(result.rewritten.model)


def by_sample(source: onnx.ModelProto, feeds: Mapping[str, Array], own: int) -> list[Array]:
    """The outputs of ONNX Runtime, which runs `own` samples at a time."""
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    count = len(next(iter(feeds.values()))) // own
    runs = [session.run(None, {k: v[n * own : (n + 1) * own] for k, v in feeds.items()}) for n in range(count)]
    return [np.concatenate(parts) for parts in zip(*runs, strict=True)]
