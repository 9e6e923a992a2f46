"""Networks of Keras on TensorFlow, exported by `model.export(format="onnx")`, which uses tf2onnx."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from .answering import Request, answer_all, require_use, shape_of

_WORDS = 50


def _mlp(x: Any) -> Any:
    return layers.Dense(8)(layers.LayerNormalization()(layers.Dense(64, "swish")(x)))


def _convolutional(x: Any) -> Any:
    for channels in (16, 32):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(channels, 3, padding="same")(x)))
        x = layers.MaxPooling2D()(x)
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))


def _separable(x: Any) -> Any:
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu6")(x)
    for _ in range(2):
        y = layers.DepthwiseConv2D(3, padding="same", activation="swish")(layers.Conv2D(32, 1)(x))
        scale = layers.Dense(32, "sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(y))
        x = layers.Add()([x, layers.Conv2D(16, 1)(layers.Multiply()([y, scale]))])
    return layers.Dense(10)(layers.Flatten()(layers.AveragePooling2D(2)(x)))


def _lstm(x: Any) -> Any:
    return layers.Dense(4)(layers.LSTM(16)(layers.LSTM(16, return_sequences=True)(x)))


def _bidirectional_gru(x: Any) -> Any:
    return layers.Dense(4)(layers.Bidirectional(layers.GRU(12, return_sequences=True))(x))


def _attention(x: Any) -> Any:
    x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(4, 8)(x, x)]))
    return layers.Add()([x, layers.Dense(32)(layers.Dense(64, "swish")(x))])


def _u_net(x: Any) -> Any:
    outer = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    inner = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.MaxPooling2D()(outer))
    large = layers.UpSampling2D(interpolation="bilinear")(inner)
    grown = layers.Conv2DTranspose(8, 2, strides=2)(inner)
    return layers.Conv2D(1, 1)(layers.Concatenate()([outer, large, grown]))


def _text_convolution(x: Any) -> Any:
    x = layers.Embedding(_WORDS, 16)(x)
    branches = [layers.GlobalMaxPooling1D()(layers.Conv1D(8, width, activation="relu")(x)) for width in (2, 3)]
    return layers.Dense(3)(layers.Concatenate()(branches))


NETWORKS = {
    "Mlp": _mlp, "Convolutional": _convolutional, "Separable": _separable, "Lstm": _lstm,
    "BidirectionalGru": _bidirectional_gru, "Attention": _attention, "UNet": _u_net,
    "TextConvolution": _text_convolution,
}  # fmt: skip


def _export(request: Request) -> dict[str, Any]:
    keras.utils.set_random_seed(0)
    shape = shape_of(request)
    kind = "int32" if request["architecture"]["inputs"][0]["kind"] == "integers" else "float32"
    x = keras.Input(shape[1:], batch_size=shape[0], dtype=kind, name="x")
    model = keras.Model(x, NETWORKS[request["architecture"]["model"]](x))
    model(np.zeros([size or 1 for size in shape], kind))  # an export needs a call
    model.export(request["path"], format="onnx", verbose=False)
    require_use(request)
    return {}


if __name__ == "__main__":
    answer_all(_export)
