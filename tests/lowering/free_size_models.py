"""Models whose sizes are free, one of each kind: maps, rows, a recurrence, a detector's head, and much reshaping."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .small_models import model, weights

node = helper.make_node


def feature_maps() -> onnx.ModelProto:
    """Windows over maps of any size: with and without stride, over all channels and single ones; joined, resized."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w2"], ["d"], pads=[1, 1, 1, 1], group=20),
        node("Conv", ["d", "w3"], ["p"]),
        node("Add", ["p", "r"], ["s"]),
        node("MaxPool", ["s"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", ["m", "", "twice"], ["u"], mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        node("GlobalAveragePool", ["s"], ["g"]),
        node("Mul", ["u", "g"], ["v"]),
        node("Concat", ["v", "u"], ["y"], axis=1),
        node("AveragePool", ["s"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Sigmoid", ["q"], ["z"]),
    ]  # fmt: skip
    stored = {"w1": weights(20, 3, 3, 3), "b1": weights(20), "w2": weights(20, 1, 3, 3), "w3": weights(20, 20, 1, 1)}
    twice = np.array([1, 1, 2, 2], np.float32)
    shapes = {"y": ["N", 40, None, None], "z": ["N", 20, None, None]}
    return model(nodes, {"x": ["N", 3, "H", "W"]}, shapes, twice=twice, **stored)


def pictures() -> onnx.ModelProto:
    """A map of few channels becomes a picture of three colours, as when an image is enlarged."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w2", "b2"], ["c"], pads=[3, 3, 3, 3]),
        node("Tanh", ["c"], ["y"]),
    ]
    stored = {"w1": weights(24, 3, 3, 3), "w2": weights(3, 24, 7, 7) / 8, "b2": weights(3)}
    return model(nodes, {"x": ["N", 3, "H", "W"]}, {"y": ["N", 3, "H", "W"]}, **stored)


def sequences() -> onnx.ModelProto:
    """Rows of any number and length: products, softmax over a free axis, normalisation, attention, a table."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LayerNormalization", ["e", "gain", "shift"], ["n"], axis=-1),
        node("MatMul", ["n", "wq"], ["q"]),
        node("Transpose", ["n"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "n"], ["h"]),
        node("Add", ["h", "e"], ["y"]),
        node("ReduceMean", ["y"], ["mean"], axes=[1], keepdims=0),
        node("Reshape", ["y", "flat"], ["z"]),
    ]
    stored = {"table": weights(50, 24), "gain": weights(24), "shift": weights(24), "wq": weights(24, 24)}
    flat = np.array([-1, 24], np.int64)
    shapes = {"mean": ["N", 24], "z": [None, 24], "weights": ["N", "L", "L"]}
    return model(nodes, {"ids": ["N", "L"]}, shapes, ["ids"], flat=flat, **stored)


def recurrences() -> onnx.ModelProto:
    """Windows over sound, two recurrences, of which one runs in both directions from states of its own, and a score."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], strides=[2], pads=[1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[2, 0, 1]),
        node("LSTM", ["t", "wl", "rl", "bl"], ["l", "", ""], hidden_size=12, direction="bidirectional"),
        node("Transpose", ["l"], ["m"], perm=[0, 2, 1, 3]),
        node("Reshape", ["m", "both"], ["h"]),
        node("GRU", ["h", "wg", "rg", "", "", "s"], ["g", "last"], hidden_size=8),
        node("Squeeze", ["g", "one"], ["q"]),
        node("MatMul", ["q", "wo"], ["o"]),
        node("Sigmoid", ["o"], ["y"]),
    ]
    stored = {
        "w1": weights(16, 4, 3), "wl": weights(2, 48, 16), "rl": weights(2, 48, 12), "bl": weights(2, 96),
        "wg": weights(1, 24, 24), "rg": weights(1, 24, 8), "wo": weights(8, 1),
    }  # fmt: skip
    shapes = {"y": [None, "N", 1], "last": [1, "N", 8]}
    inputs = {"x": ["N", 4, "L"], "s": [1, "N", 8]}
    return model(nodes, inputs, shapes, both=np.array([0, 0, -1]), one=np.array([1]), **stored)


def detectors() -> onnx.ModelProto:
    """Two scales of a map, the smaller one enlarged to the size of the larger one, and boxes in rows of both."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("LeakyRelu", ["a"], ["p"]),
        node("Conv", ["p", "w2"], ["b"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("HardSwish", ["b"], ["q"]),
        node("Shape", ["p"], ["size"], start=2),
        node("Shape", ["q"], ["head"], end=2),
        node("Concat", ["head", "size"], ["target"], axis=0),
        node("Resize", ["q", "", "", "target"], ["u"], mode="linear"),
        node("Concat", ["u", "p"], ["c"], axis=1),
        node("Conv", ["c", "w3"], ["d"]),
        node("ConvTranspose", ["q", "w4"], ["e"], strides=[2, 2]),
        node("Reshape", ["d", "rows"], ["dr"]),
        node("Reshape", ["e", "rows"], ["er"]),
        node("Concat", ["dr", "er"], ["all"], axis=2),
        node("Transpose", ["all"], ["boxes"], perm=[0, 2, 1]),
        node("Split", ["boxes", "parts"], ["places", "scores"], axis=2),
        node("Softmax", ["scores"], ["classes"], axis=-1),
        node("Concat", ["places", "classes"], ["y"], axis=2),
    ]
    stored = {"w1": weights(16, 3, 3, 3), "w2": weights(24, 16, 3, 3), "w3": weights(7, 40, 1, 1)}
    stored |= {"w4": weights(24, 7, 2, 2), "rows": np.array([0, 7, -1]), "parts": np.array([4, 3])}
    return model(nodes, {"x": ["N", 3, "H", "W"]}, {"y": ["N", None, 7]}, **stored)


def windows_of_tokens() -> onnx.ModelProto:
    """A map in squares of 2 x 2, whose tokens look at each other; channels shuffled, and sums of parts of rows."""
    nodes = [
        node("Pad", ["x", "pads"], ["p"]),
        node("Shape", ["x"], ["n"], end=1),
        node("Reshape", ["p", "pairs"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[2], keepdims=0),
        node("Transpose", ["m"], ["t"], perm=[0, 2, 3, 1]),
        node("Flatten", ["t"], ["f"], axis=3),
        node("MatMul", ["f", "w"], ["k"]),
        node("Reshape", ["k", "heads"], ["h"]),
        node("Transpose", ["h"], ["s"], perm=[1, 0, 2]),
        node("Softmax", ["s"], ["z"], axis=1),
        node("Slice", ["z", "begin", "end", "last"], ["c"]),
        node("ReduceSum", ["c", "last"], ["y"], keepdims=1),
        node("Tile", ["m", "twice"], ["v"]),
        node("Gather", ["v", "shuffled"], ["o"], axis=1),
    ]
    stored = {"w": weights(8, 16), "heads": np.array([-1, 4, 4]), "pairs": np.array([0, 8, 2, -1, 6])}
    stored |= {"pads": np.array([0, 0, 0, 0, 0, 0, 0, 0]), "begin": np.array([1]), "end": np.array([4])}
    stored |= {"last": np.array([-1]), "twice": np.array([1, 2, 1, 1])}
    stored |= {"shuffled": np.array([8, 1, 10, 3, 12, 5, 14, 7])}
    return model(nodes, {"x": ["N", 16, "H", 6]}, {"y": [4, None, 1], "o": ["N", 8, None, 6]}, **stored)
