"""Damage to weights that lie outside a model's file: the place that the model names, and the bytes there."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from onnx import ModelProto, TensorProto

from .sites import INTEGERS, NAMES, tensors_of

_FILE = "w.bin"


def _external(folder: Path, model: ModelProto, random: Random) -> TensorProto:
    """A tensor with external data: one that is moved out, where the model has none."""
    tensors = tensors_of(model) or [model.graph.initializer.add(name="added", dims=[1], data_type=TensorProto.FLOAT)]
    tensor = random.choice([t for t in tensors if t.data_location == TensorProto.EXTERNAL] or tensors)
    if tensor.data_location != TensorProto.EXTERNAL:
        tensor.data_location = TensorProto.EXTERNAL
        (folder / _FILE).write_bytes(tensor.raw_data or bytes(64))
        tensor.ClearField("raw_data")
        tensor.external_data.add(key="location", value=_FILE)
    return tensor


def misplace_external_data(folder: Path, model: ModelProto, random: Random) -> None:
    absolute = str(folder / _FILE)
    places = (*NAMES, absolute, "/etc/passwd", "/dev/zero", "..", ".", "/", "in.onnx", "none.bin", "sub/../w.bin")
    entries = _external(folder, model, random).external_data
    next(entry for entry in entries if entry.key == "location").value = random.choice(places)


def misstate_the_extent(folder: Path, model: ModelProto, random: Random) -> None:
    tensor = _external(folder, model, random)
    key = random.choice(("offset", "length"))
    wrong = str(random.choice((*INTEGERS, 4, 8, 63)))
    value = random.choice((wrong, wrong, "0x10", "", "1e3", "٣", "9" * 5000, " 4", "4 "))
    kept = [(entry.key, entry.value) for entry in tensor.external_data if entry.key != key]
    del tensor.external_data[:]
    for name, text in (*kept, (key, value)):
        tensor.external_data.add(key=name, value=text)


def replace_the_file(folder: Path, model: ModelProto, random: Random) -> None:
    """By a pipe, a folder, a link to itself or to a device, or by one that is shorter or cannot be found."""
    _external(folder, model, random)
    file = folder / _FILE
    content = file.read_bytes()
    file.unlink()
    match random.randrange(7):
        case 0:
            os.mkfifo(file)
        case 1:
            file.mkdir()
        case 2:
            file.symlink_to(file.name)
        case 3:
            file.symlink_to("/dev/zero")
        case 4:
            file.write_bytes(content[: len(content) // 2])
        case 5:
            file.write_bytes(b"")
        case _:
            (folder / "real.bin").write_bytes(content)
            file.symlink_to("real.bin")


FILE_DAMAGES = (misplace_external_data, misstate_the_extent, replace_the_file)
"""Each damages a model and the files beside it, in place."""
