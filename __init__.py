"""eqfuse: a declarative rule-engine graph rewriter and tensor compiler for ONNX models.

>>> import eqfuse
>>> result = eqfuse.optimize("model.onnx", "out.onnx")
>>> result.before.layers, result.after.layers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .deferred import defer

__version__ = "0.1.0"
__all__ = ["Options", "Result", "__version__", "compile", "load", "optimize"]

if TYPE_CHECKING:
    from .api import Options, Result, compile, load, optimize

for _module in ("sympy", "onnx_ir._symbolic_shapes"):
    defer(_module)  # onnx-ir calculates with symbolic dimensions; it imports them all the same


def __getattr__(name: str) -> Any:
    """Load the API on first use: ``import eqfuse`` alone costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'eqfuse' has no attribute {name!r}")
    from . import api

    return getattr(api, name)
