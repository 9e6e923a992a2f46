"""A model as a file on disk plus its structure without the large weights.

ONNX Runtime reads weights from the file itself, so a model given as a path is never copied, whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import onnx
from google.protobuf.message import Error as ProtobufError

from ....support.errors import UsageError
from ....support.scratch import scratch_folder
from .skim import read_structure

if TYPE_CHECKING:
    import onnx_ir

ModelLike: TypeAlias = "Path | str | onnx.ModelProto | onnx_ir.Model"


@dataclass(frozen=True)
class Source:
    """A model file and its structure. ``structure`` is read only; large initializers have type and dims but no data."""

    path: Path
    structure: onnx.ModelProto

    @property
    def graph(self) -> onnx.GraphProto:
        """The main graph."""
        return self.structure.graph


@contextmanager
def open_source(model: ModelLike, role: str) -> Iterator[Source]:
    """Give the model as a file; a model in memory is in a temporary directory while the context lives.

    ``role`` ("original", "candidate") is used in messages. Raises UsageError if the file is missing or no ONNX model.
    """
    with model_file(model) as path:
        yield read_source(path, role)


@contextmanager
def model_file(model: ModelLike) -> Iterator[Path]:
    """The path of the model; a model in memory is in a temporary directory while the context lives."""
    if isinstance(model, (str, Path)):
        yield Path(model)
        return
    with scratch_folder("verify") as directory:
        path = Path(directory) / "model.onnx"
        _write(model, path)
        yield path


def read_source(path: Path, role: str) -> Source:
    """The model in a file. Raises UsageError if it is missing or no ONNX model; ``role`` is for that message."""
    if not path.is_file():
        raise UsageError(f"the {role} model {path} does not exist or is no file; check the path")
    try:
        model = read_structure(path)
    except (ProtobufError, ValueError, OSError) as error:
        raise UsageError(f"the {role} model {path} is not a readable ONNX model ({error}); check the file") from error
    if not model.HasField("graph"):
        raise UsageError(f"the {role} model {path} holds no graph; check that it is an ONNX model")
    return Source(path, model)


def _write(model: onnx.ModelProto | onnx_ir.Model, path: Path) -> None:
    import onnx_ir  # the process that verifies does without

    if isinstance(model, onnx.ModelProto):
        try:
            path.write_bytes(model.SerializeToString())
            return
        except (ValueError, ProtobufError):
            # Protobuf messages end at 2 GB; beyond, the weights must go to a file of their own.
            model = onnx_ir.from_proto(model)
    onnx_ir.save(model, path, external_data="weights.data")
