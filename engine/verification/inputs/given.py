"""Inputs that users give: .npz files, and folders of them, of NAME.npy files or of ONNX test data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import onnx
from google.protobuf.message import Error as ProtobufError
from numpy.typing import NDArray
from onnx import numpy_helper

from ....support.errors import UsageError
from .plans import numpy_type

_FORMS = "give an .npz file with an array for each input, or a folder of such files, of NAME.npy or of input_0.pb files"


@dataclass(frozen=True)
class Sample:
    """A value for every input of a model; `origin` is the file or folder that it comes from."""

    origin: str
    values: Mapping[str, NDArray[Any]]

    @property
    def digest(self) -> str:
        """SHA-256 of the values."""
        digest = sha256()
        for name, array in self.values.items():
            digest.update(f"{name} {array.dtype} {array.shape} ".encode())
            digest.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
        return digest.hexdigest()


def read_samples(paths: Iterable[Path], inputs: Sequence[onnx.ValueInfoProto]) -> tuple[Sample, ...]:
    """The samples in the files and folders, each with a value for all of a model's `inputs`.

    An .npz file is one sample, and so is a folder of NAME.npy files or of input_0.pb, input_1.pb, ... (in the order of
    the model's inputs); a folder of .npz files or of such folders holds several. Raises UsageError if an input is
    missing, unknown, or of another type or shape than the model's.
    """
    return tuple(_check_sample(sample, inputs) for path in paths for sample in _samples(path, inputs))


def _samples(path: Path, inputs: Sequence[onnx.ValueInfoProto]) -> Iterator[Sample]:
    if path.is_file():
        yield _archive(path)
        return
    if not path.is_dir():
        raise UsageError(f"{path}: no such file or folder of inputs; {_FORMS}")
    folders = [path, *sorted(folder for folder in path.iterdir() if folder.is_dir())]
    samples = [sample for folder in folders for sample in _folder(folder, inputs)]
    if not samples:
        raise UsageError(f"{path}: there are no inputs in this folder; {_FORMS}")
    yield from samples


def _folder(folder: Path, inputs: Sequence[onnx.ValueInfoProto]) -> Iterator[Sample]:
    """The samples in the files of a folder, without its sub-folders."""
    for file in sorted(folder.glob("*.npz")):
        yield _archive(file)
    arrays = {file.stem: _array(file) for file in sorted(folder.glob("*.npy"))}
    if arrays:
        yield Sample(str(folder), arrays)
    numbered = {int(match[1]): file for file in folder.glob("input_*.pb") if (match := _NUMBERED.fullmatch(file.name))}
    if numbered:
        surplus = [file.name for number, file in numbered.items() if number >= len(inputs)]
        if surplus:
            raise UsageError(f"{folder}: {surplus[0]} is of none of the model's {len(inputs)} inputs; remove it")
        yield Sample(str(folder), {inputs[number].name: _test_data(file) for number, file in numbered.items()})


_NUMBERED = re.compile(r"input_(\d+)\.pb")


def _archive(path: Path) -> Sample:
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.lib.npyio.NpzFile):
            return Sample(str(path), dict(content))
    except (ValueError, OSError, EOFError, BadZipFile):
        pass
    raise UsageError(f"{path}: is no .npz file of numbers; {_FORMS}")


def _array(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, OSError, EOFError):
        raise UsageError(f"{path}: is no .npy file of numbers; {_FORMS}") from None


def _test_data(path: Path) -> NDArray[Any]:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return np.asarray(numpy_helper.to_array(tensor))
    except (ProtobufError, ValueError, TypeError, OSError):
        raise UsageError(f"{path}: is no tensor of ONNX test data; {_FORMS}") from None


def _check_sample(sample: Sample, inputs: Sequence[onnx.ValueInfoProto]) -> Sample:
    names = [value.name for value in inputs]
    given = ", ".join(map(repr, sample.values)) or "none"
    for value in inputs:
        if value.name not in sample.values:
            raise UsageError(f"{sample.origin}: lacks the input {_describe_input(value)}; it has {given}")
    for name in sample.values:
        if name not in names:
            wanted = ", ".join(map(repr, names)) or "none"
            raise UsageError(f"{sample.origin}: the model has no input {name!r}; its inputs are {wanted}")
    sizes: dict[str, int] = {}
    return Sample(sample.origin, {value.name: _fit_array(value, sample, sizes) for value in inputs})


def _fit_array(value: onnx.ValueInfoProto, sample: Sample, sizes: dict[str, int]) -> NDArray[Any]:
    """The array for an input. Adds the sizes of its named dimensions to `sizes`, and checks those already in it."""
    array = sample.values[value.name]
    wanted = numpy_type(value.type.tensor_type.elem_type) if value.type.HasField("tensor_type") else None
    if wanted is None:
        raise UsageError(f"{sample.origin}: input {value.name!r} is no tensor of numbers, and only those can be given")
    if wanted.kind == "O" and array.dtype.kind in "US":
        array = array.astype(object)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)  # numpy writes types that it lacks as bytes
    if array.dtype != wanted:
        raise UsageError(
            f"{sample.origin}: input {value.name!r} is {array.dtype}, and the model wants {wanted}; "
            f"convert it by .astype('{wanted}')"
        )
    if not _fits(array.shape, value, sizes):
        shape = list(array.shape)
        raise UsageError(f"{sample.origin}: input {value.name!r} has the shape {shape}, and the model wants "
                         f"{_describe_input(value)}{_sizes_text(value, sizes)}; give it in that shape")  # fmt: skip
    return array


def _fits(shape: tuple[int, ...], value: onnx.ValueInfoProto, sizes: dict[str, int]) -> bool:
    if not value.type.tensor_type.HasField("shape"):
        return True
    dims = value.type.tensor_type.shape.dim
    if len(dims) != len(shape):
        return False
    for dim, size in zip(dims, shape, strict=True):
        if dim.HasField("dim_value") and dim.dim_value != size:
            return False
        if dim.dim_param and sizes.setdefault(dim.dim_param, size) != size:
            return False
    return True


def _sizes_text(value: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> str:
    used = {dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param in sizes}
    return f" where {', '.join(f'{name} is {sizes[name]}' for name in sorted(used))}" if used else ""


def _describe_input(value: onnx.ValueInfoProto) -> str:
    """``'x': float32[1, 3, N]``."""
    tensor = value.type.tensor_type
    dtype = numpy_type(tensor.elem_type)
    dims = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim]
    shape = f"[{', '.join(dims)}]" if tensor.HasField("shape") else ""
    return f"{value.name!r}: {dtype or 'another type'}{shape}"
