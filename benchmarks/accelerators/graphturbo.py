"""What GraphTurbo prints (OSDI 2023, section 5), and builders of the ten models that it was measured on.

The text does not print the sizes of all of its models. They are read off its figures:

- BERT: in Table 3 TVM makes 242 tensors of B, C and E, and 515 of D, so D has twice their layers: it is BERT-large,
  which MLPerf runs at 384 tokens, and the others are BERT-base. Table 2 agrees: the largest activations of the
  samples that TVM gives a cluster (feed-forward, float16) take 3.1 MB for all four (4 x 128 x 3072, 2 x 256 x 3072,
  384 x 4096 and 512 x 3072 numbers), and D is nine times slower than E, though its sentences are shorter.
- DenseNet: 247 tensors are four for each of 58 layers and fifteen more, as DenseNet-121 has them.
- ViT: 214 tensors are 18 for each of 12 layers, near BERT-base's 20: it is ViT-Base, of which /16 at 224 is the usual.
- Conformer: 1054 tensors are 66 for each of the 16 blocks that sizes S and M have (L: 62 for each of 17), of which ours
  have 26: with no size do the counts meet. Positions here are absolute, while the paper's relative ones take a product
  and a shift more, and TensorFlow 1.13 spells normalisations out. S is taken, with 10 s of speech: then 1, which is
  what TVM gives a cluster, is the most of which every tensor fits LLB (the largest takes 5.9 MB of 8 MB).
- DLRM is MLPerf's but for the rows of its tables, see networks/recommendation.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import onnx

from eqfuse.engine.choices import PartitionMethod

from ..measuring.quantising import quantised
from ..networks.attention import BERT_LARGE, bert, vit_base
from ..networks.conformer import conformer
from ..networks.convolutional import densenet121, resnet50
from ..networks.mobile import mobilenet_v2
from ..networks.recommendation import dlrm
from ..table5.transformers import BERT_BASE


@dataclass(frozen=True)
class Allocation:
    """A row of Table 1: BERT-128 at a batch size, as `iterations` of `per_cluster` samples on each busy cluster;
    sentences/s and milliseconds."""

    approach: str
    batch: int
    iterations: int
    per_cluster: int
    throughput: int
    latency: float


TABLE1 = (
    Allocation("TVM", 8, 1, 2, 138, 6.79),
    Allocation("TVM", 16, 1, 4, 512, 9.48),
    Allocation("TVM", 32, 2, 4, 512, 18.96),
    Allocation("TVM", 64, 4, 4, 512, 37.92),
    Allocation("GraphTurbo", 8, 1, 2, 138, 6.79),
    Allocation("GraphTurbo", 16, 1, 4, 512, 9.48),
    Allocation("GraphTurbo", 32, 1, 8, 4052, 7.67),
    Allocation("GraphTurbo", 64, 1, 16, 2716, 23.58),
    Allocation("GraphTurbo", 64, 2, 8, 4052, 15.34),
    Allocation("crafted", 32, 1, 8, 4048, 7.62),
)
"""By approach and batch size; `crafted` is the vendor's own code."""


@dataclass(frozen=True)
class Configuration:
    """A row of Table 2. `build` gives the model for a batch size; `tvm` and `graphturbo` are samples per cluster;
    `throughput` is TVM's, in `unit`. A float takes `float_bytes` on the device. The layers are those that TVM fuses,
    which is what the text starts from, or of another `partition`."""

    model: str
    build: Callable[[int], onnx.ModelProto]
    batch: int
    tvm: int
    graphturbo: int
    unit: str
    throughput: int
    float_bytes: int = 2
    partition: PartitionMethod = "fuseops"


def _bert(length: int) -> Callable[[int], onnx.ModelProto]:
    return partial(bert, BERT_LARGE if length == 384 else BERT_BASE, length)


TABLE2: dict[str, Configuration] = {
    "A": Configuration("ResNet-50", resnet50, 64, 2, 16, "images/s", 1064),
    "B": Configuration("BERT-128", _bert(128), 32, 4, 8, "sentences/s", 512),
    "C": Configuration("BERT-256", _bert(256), 16, 2, 4, "sentences/s", 412),
    "D": Configuration("BERT-384", _bert(384), 8, 1, 2, "sentences/s", 36),
    "E": Configuration("BERT-512", _bert(512), 8, 1, 2, "sentences/s", 324),
    "F": Configuration("DLRM", dlrm, 1024, 64, 256, "queries/s", 131000),
    "G": Configuration("MobileNet-v2", partial(mobilenet_v2, 224), 128, 2, 32, "images/s", 1416),
    "H": Configuration("Vision_Transformer", vit_base, 32, 4, 8, "images/s", 40),
    "I": Configuration("DenseNet", densenet121, 32, 4, 8, "images/s", 456),
    "J": Configuration("Conformer", conformer, 12, 1, 3, "sentences/s", 184),
}
"""By label."""


def _resnet50_of_bytes(batch: int) -> onnx.ModelProto:
    """With random weights and the ranges of random images, quantised by ONNX Runtime's tools."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.onnx"
        onnx.save(resnet50(batch), path)
        return onnx.load(quantised(path, "qdq-s8s8-channel"))


QUANTISED = {
    "A8": replace(
        TABLE2["A"], model="ResNet-50 (INT8)", build=_resnet50_of_bytes, float_bytes=4, partition="joint"
    )
}
"""Figure 16b's, whose throughput the text does not print. Sums of 32 bits are scaled as floats of 32 bits. Whether a
product of integers is cheaper shows only with the costs of what is fused with it."""
MODELS = {**TABLE2, **QUANTISED}


@dataclass(frozen=True)
class ScopeCounts:
    """Tensors at one level of memory (None: the vendor has no code for the model)."""

    tvm: int
    crafted: int | None
    graphturbo: int


@dataclass(frozen=True)
class BufferScopes:
    """A row of Table 3. LLB is the last local buffer, which is the global buffer of a cluster; L1 is the local one."""

    ddr: ScopeCounts
    llb: ScopeCounts
    l1: ScopeCounts


TABLE3: dict[str, BufferScopes] = {
    "A": BufferScopes(ScopeCounts(58, 1, 1), ScopeCounts(0, 11, 11), ScopeCounts(0, 291, 284)),
    "B": BufferScopes(ScopeCounts(242, 2, 1), ScopeCounts(0, 0, 0), ScopeCounts(0, 304, 305)),
    "C": BufferScopes(ScopeCounts(242, 2, 1), ScopeCounts(0, 25, 110), ScopeCounts(0, 401, 240)),
    "D": BufferScopes(ScopeCounts(515, 2, 1), ScopeCounts(0, 49, 75), ScopeCounts(0, 968, 967)),
    "E": BufferScopes(ScopeCounts(242, 2, 1), ScopeCounts(0, 25, 76), ScopeCounts(0, 474, 337)),
    "F": BufferScopes(ScopeCounts(76, 1, 0), ScopeCounts(0, 0, 0), ScopeCounts(0, 75, 76)),
    "G": BufferScopes(ScopeCounts(56, 1, 0), ScopeCounts(0, 7, 3), ScopeCounts(0, 619, 608)),
    "H": BufferScopes(ScopeCounts(214, None, 24), ScopeCounts(0, None, 60), ScopeCounts(0, None, 340)),
    "I": BufferScopes(ScopeCounts(247, None, 0), ScopeCounts(0, None, 3), ScopeCounts(0, None, 389)),
    "J": BufferScopes(ScopeCounts(1054, None, 4), ScopeCounts(0, None, 813), ScopeCounts(0, None, 250)),
}
"""By label."""


@dataclass(frozen=True)
class CompilationTime:
    """A row of Table 4, seconds."""

    tvm: int
    astitch: int
    graphturbo: int


TABLE4: dict[str, CompilationTime] = {
    "A": CompilationTime(102, 66, 139),
    "B": CompilationTime(159, 128, 199),
    "C": CompilationTime(170, 136, 224),
    "D": CompilationTime(312, 290, 699),
    "E": CompilationTime(171, 143, 282),
    "F": CompilationTime(25, 22, 23),
    "G": CompilationTime(74, 57, 248),
    "H": CompilationTime(189, 146, 340),
    "I": CompilationTime(173, 129, 189),
    "J": CompilationTime(382, 238, 296),
}
"""By label."""
