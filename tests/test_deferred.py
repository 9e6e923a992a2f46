"""Modules that are loaded on first use."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import eqfuse.api
assert "sympy.core" not in sys.modules, "loaded"
import onnx_ir
assert str(onnx_ir.SymbolicDim("n") + 1) == "n + 1"
import sympy
assert sympy.Symbol("x") + 0 == sympy.Symbol("x")
assert "sympy.core" in sys.modules
"""


def test_sympy_is_loaded_when_it_is_needed() -> None:
    finished = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_what_is_not_installed_is_missing_as_ever() -> None:
    program = "from eqfuse.deferred import defer; defer('no_such.module'); defer('no_such'); import no_such"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ModuleNotFoundError" in finished.stderr
