"""The model after each stage of `optimize`, as files for those who look for the stage that changed something."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from ..engine.onnx.model import Model, write
from ..support.errors import UsageError
from .options import Options

Stage = Literal["read", "infer", "decode", "summarize"]
"""The stages that make a model: with the shapes, outputs and opset of the options; with constants for arguments that
are the same for all sizes; the chosen graph; and the result, with what its original declares and its sub-graphs."""


def check_folder(options: Options) -> list[Path]:
    """Make the folder if the options name one, and list the files that stages will write.

    Raises UsageError if they cannot be there.
    """
    folder = options.save_intermediate
    if folder is None:
        return []
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise UsageError(f"{folder}: the folder {folder.parent} does not exist") from None
    except OSError as error:
        raise UsageError(f"{folder}: cannot be a folder: {error.strerror or error}") from None
    return [_place(folder, stage) for stage in get_args(Stage)]


def save_stage(options: Options, stage: Stage, model: Model) -> None:
    """Write the model as it is after a stage, if the options name a folder. Raises EqfuseError if that fails."""
    if options.save_intermediate is not None:
        write(model, _place(options.save_intermediate, stage))


def _place(folder: Path, stage: Stage) -> Path:
    return folder / f"{1 + get_args(Stage).index(stage)}-{stage}.onnx"
