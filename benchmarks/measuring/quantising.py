"""Quantised models as ONNX Runtime's tools make them, kept in the cache folder for other runs.

The ranges of static quantisation are those of inputs of the fixed seeds `CALIBRATION_SEEDS`, which are random unless
the model has inputs of its own: most networks here have random weights. The tools' own preprocessing goes before, which
folds normalisations into convolutions.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from eqfuse.benchmarks.measuring.contestants import ContestantError
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.interface import inputs_of
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.support.files import cache_folder, staged_file

Array = np.ndarray[Any, Any]
CALIBRATION_SEEDS = range(2, 10)
"""Of the inputs whose ranges static quantisation takes; those that are compared have seeds 0 and 1."""
_VERSION = 1
"""Of how models are made here: part of the names of kept files."""


@dataclass(frozen=True)
class Form:
    """How a model is quantised: `layout` is QDQ, QOperator or dynamic, the types are those of activations and weights.

    `per_channel`: each channel of a weight has its own scale. `reduced`: weights have 7 bits.
    """

    layout: str
    activations: QuantType
    weights: QuantType
    per_channel: bool = False
    reduced: bool = False

    def quantise(self, source: Path, target: Path, inputs: Sequence[Mapping[str, Array]]) -> None:
        """Write the quantised model of a preprocessed one with fixed sizes, its ranges those of these inputs."""
        options = {"weight_type": self.weights, "per_channel": self.per_channel, "reduce_range": self.reduced}
        if self.layout == "dynamic":
            quantize_dynamic(source, target, **options)
            return
        quantize_static(
            source, target, _Inputs(inputs), quant_format=QuantFormat[self.layout],
            activation_type=self.activations, **options,
        )  # fmt: skip


_U8, _S8 = QuantType.QUInt8, QuantType.QInt8
FORMS: Mapping[str, Form] = {
    "qdq-u8s8": Form("QDQ", _U8, _S8),
    "qdq-u8s8-channel": Form("QDQ", _U8, _S8, True),
    "qdq-u8s7-channel": Form("QDQ", _U8, _S8, True, True),
    "qdq-s8s8": Form("QDQ", _S8, _S8),
    "qdq-s8s8-channel": Form("QDQ", _S8, _S8, True),
    "qoperator-u8s8-channel": Form("QOperator", _U8, _S8, True),
    "dynamic": Form("dynamic", _U8, _S8),
}
"""By the ends of the names of rows."""


class _Inputs(CalibrationDataReader):  # type: ignore[misc]
    """Gives inputs to the tools one after the other."""

    def __init__(self, inputs: Sequence[Mapping[str, Array]]) -> None:
        self._rest = iter(inputs)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._rest, None)


def quantised(model: Path, form: str, inputs: Path | None = None) -> Path:
    """The file of the quantised model, from the cache folder if an earlier run made it.

    `inputs` is a folder of inputs 0.npz, 1.npz, ...; without one they are random. Raises ContestantError if ONNX
    Runtime's tools cannot make it.
    """
    drawn = _calibration(model, inputs)
    content = sha256(f"{_VERSION} {onnxruntime.__version__} {form}".encode())
    content.update(model.read_bytes())
    for array in (array for arrays in drawn for array in arrays.values()):
        content.update(np.ascontiguousarray(array).tobytes())
    path = cache_folder() / "benchmarks" / f"{model.stem}-{form}-{content.hexdigest()[:16]}.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder, _quiet(), staged_file(path) as staged:
            prepared = Path(folder) / "prepared.onnx"
            quant_pre_process(model, prepared, skip_symbolic_shape=True)
            FORMS[form].quantise(prepared, staged, drawn)
    except Exception as error:  # the tools raise exceptions of many kinds
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ContestantError(f"ONNX Runtime's tools cannot quantise it: {text[:300]}") from error
    return path


def _calibration(model: Path, inputs: Path | None) -> list[Mapping[str, Array]]:
    """The inputs whose ranges are taken."""
    if inputs is None:
        ports = inputs_of(read(model))
        return [random_inputs(ports, seed) for seed in CALIBRATION_SEEDS]
    return [dict(np.load(inputs / f"{seed}.npz")) for seed in CALIBRATION_SEEDS]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the tools' warnings of weights that have no axis for channels."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
