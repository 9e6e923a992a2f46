"""Virtual environments of the tools that export, each in a folder of its own: their demands exclude each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eqfuse.support.errors import EqfuseError

from .rows import Library

_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch without CUDA is."""


class ExportError(EqfuseError):
    """There is no environment that exports, or an export fails."""


@dataclass(frozen=True)
class Environment:
    """What is installed, and the module of this package that exports there.

    `alone` are packages whose own demands are ignored; `removed` are files that fit other versions of a package alone,
    which does without them.
    """

    name: str
    module: str
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


_TORCH = Environment(
    "torch", "torch_side.export",
    ("torch==2.13.0", "torchvision==0.28.0", "timm==1.0.31", "transformers==5.24.0", "onnx==1.23.2",
     "onnxscript==0.7.2", "onnxruntime==1.32.0", "requests", "importlib_metadata"),
    alone=("diffusers==0.42.1", "torchaudio==2.11.1"), removed=("torchaudio/lib/_torchaudio.so",),
)  # fmt: skip
_LEARN = Environment(
    "scikit-learn", "tool_side.estimators",
    ("scikit-learn==1.9.1", "skl2onnx==1.20.0", "onnx==1.23.2", "onnxruntime==1.32.0"),
)  # fmt: skip
_BOOSTING = Environment(
    "boosting", "tool_side.estimators",
    ("lightgbm==4.7.0", "xgboost-cpu==3.2.0", "onnxmltools==1.16.0", "scikit-learn==1.9.1", "skl2onnx==1.20.0",
     "onnx==1.23.2", "onnxruntime==1.32.0"),
)  # fmt: skip
_JAX = Environment(
    "jax", "tool_side.jax_networks", ("jax==0.10.2", "flax==0.12.8", "jax2onnx==0.17.1", "onnxruntime==1.32.0")
)
_KERAS = Environment(
    "keras", "tool_side.keras_networks",
    ("keras==3.15.1", "tensorflow-cpu==2.21.0", "tf2onnx==1.17.0", "onnxruntime==1.32.0"),
)  # fmt: skip
_PADDLE = Environment(
    "paddle", "tool_side.paddle_networks",
    ("paddlepaddle==3.3.1", "paddle2onnx==2.1.0", "onnxruntime==1.32.0", "setuptools<81"),
)  # fmt: skip

ENVIRONMENTS: Mapping[Library, Environment] = {
    "timm": _TORCH, "torchvision": _TORCH, "transformers": _TORCH, "own": _TORCH, "cached": _TORCH, "diffusers": _TORCH,
    "torchaudio": _TORCH, "sklearn": _LEARN, "lightgbm": _BOOSTING, "xgboost": _BOOSTING, "jax": _JAX,
    "keras": _KERAS, "paddle": _PADDLE,
}  # fmt: skip
"""By the library of the architecture."""


def make_environment(environment: Environment, folder: Path) -> Path:
    """The Python of the environment in this folder; it is made once, which takes minutes.

    Raises ExportError if pip cannot.
    """
    python = folder / "bin" / "python"
    if python.exists():
        return python
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    source = ["--extra-index-url", _INDEX] if environment is _TORCH else []
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        [*install, *source, *environment.packages],
        *([[*install, "--no-deps", *environment.alone]] if environment.alone else []),
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            python.unlink(missing_ok=True)
            raise ExportError(f"cannot make {folder}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    for name in environment.removed:
        for path in folder.glob(f"lib/python*/site-packages/{name}"):
            path.unlink()
    return python
