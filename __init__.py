"""eqfuse: a declarative rule-engine graph rewriter and tensor compiler for ONNX models.

>>> import eqfuse
>>> result = eqfuse.optimize("model.onnx", "out.onnx")
>>> result.before.layers, result.after.layers
>>> proto = eqfuse.optimize(onnx.load("model.onnx"))
>>> eqfuse.compile("model.onnx", "build/", threads=1)
>>> eqfuse.load("build/")(image)

``import eqfuse as ort`` serves programs of ONNX Runtime: `InferenceSession` compiles in the background, and other names
of `onnxruntime` are found here, too.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .support.deferred import defer
from .support.errors import EqfuseError
from .support.version import __version__

__all__ = [
    "EqfuseError", "InferenceSession", "OptimizePass", "Options", "Result", "SessionOptions", "__version__", "bench",
    "compile", "diff", "inspect", "load", "optimize", "optimize_with_result", "verify",
]  # fmt: skip

if TYPE_CHECKING:
    from .api import (
        OptimizePass,
        Options,
        Result,
        bench,
        compile,
        diff,
        inspect,
        load,
        optimize,
        optimize_with_result,
        verify,
    )
    from .driver.session.session import InferenceSession, SessionOptions

if sys.platform != "linux":
    raise ImportError(f"eqfuse runs on Linux, and this is {sys.platform}: use a Linux machine, or one in a container")

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
"""ONNX Runtime reads it when it is imported, here or in a process that this one starts. Without it, ONNX Runtime keeps
an identifier of the machine and a database of events in the user's cache folder, and sends them off."""

for _module in ("sympy", "onnx_ir._symbolic_shapes"):
    defer(_module)  # onnx-ir calculates with symbolic dimensions; it imports them all the same


def __dir__() -> list[str]:
    """The API, although nothing of it is loaded yet."""
    return __all__


def __getattr__(name: str) -> Any:
    """Load the API on first use: ``import eqfuse`` alone costs nothing. Other names are those of ONNX Runtime."""
    if name in ("InferenceSession", "SessionOptions"):
        return getattr(import_module(f"{__name__}.driver.session.session"), name)
    if name == "load":  # running bundles needs nothing else of the package
        return import_module(f"{__name__}.lowering.running.runner").load
    if name in __all__:
        return getattr(import_module(f"{__name__}.api"), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is None:
        runtime = import_module("onnxruntime")
        if hasattr(runtime, name):
            return getattr(runtime, name)
        if find_spec(f"onnxruntime.{name}") is not None:  # `from onnxruntime import datasets`
            return import_module(f"onnxruntime.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
