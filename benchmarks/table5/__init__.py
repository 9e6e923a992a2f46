"""The models of DNNFusion's Table 5 (Niu et al., PLDI 2021) that can be built without their trained weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx

from . import convolutional, transformers, video

BUILDERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "efficientnet_b0": convolutional.efficientnet_b0,
    "vgg16": convolutional.vgg16,
    "mobilenet_ssd": convolutional.mobilenet_ssd,
    "yolo_v4": convolutional.yolo_v4,
    "c3d": video.c3d,
    "s3d": video.s3d,
    "unet": convolutional.unet,
    "tinybert": partial(transformers.bert, "tinybert", transformers.TINYBERT),
    "distilbert": partial(transformers.bert, "distilbert", transformers.DISTILBERT, types=False),
    "albert": transformers.albert,
    "bert_base": partial(transformers.bert, "bert_base", transformers.BERT_BASE),
    "mobilebert": transformers.mobilebert,
    "gpt2": transformers.gpt2,
}
"""By the names of figures.py."""
