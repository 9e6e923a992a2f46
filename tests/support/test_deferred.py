"""Modules that are loaded on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

COMPILING_ONLY = frozenset({"tvm", "tvm_ffi", "distributed", "dask", "xgboost", "tornado"})
"""What compiling, tuning and clusters need, by the names that are imported."""

PROGRAM = """
import sys
import eqfuse.api
assert "sympy.core" not in sys.modules, "loaded"
import sympy
assert sympy.Symbol("x") + 0 == sympy.Symbol("x")
assert "sympy.core" in sys.modules
"""


def test_sympy_is_loaded_when_it_is_needed() -> None:
    finished = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


SUBMODULES = """
import importlib
import sys
import eqfuse.api
import sympy.functions.combinatorial.factorials as factorials
from sympy.printing.str import StrPrinter
import sympy
importlib.invalidate_caches()
assert factorials is sys.modules["sympy.functions.combinatorial.factorials"]
assert factorials.factorial is sympy.factorial
assert sympy.functions.__spec__.submodule_search_locations
"""


def test_a_module_of_a_deferred_package_can_be_imported_first() -> None:
    finished = subprocess.run([sys.executable, "-c", SUBMODULES], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_what_is_not_installed_is_missing_as_ever() -> None:
    program = "from eqfuse.support.deferred import defer; defer('no_such.module'); defer('no_such'); import no_such"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ModuleNotFoundError" in finished.stderr


def relu() -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "relu", ends[:1], ends[1:]))


@pytest.mark.parametrize("arguments", [["--help"], ["optimize", "in.onnx", "-o", "out.onnx"]], ids=["help", "optimize"])
def test_optimizing_imports_nothing_that_only_compiling_needs(arguments: list[str], tmp_path: Path) -> None:
    onnx.save(relu(), tmp_path / "in.onnx")
    command = [sys.executable, "-X", "importtime", "-m", "eqfuse", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in finished.stderr.splitlines()}
    assert "eqfuse" in imported
    assert COMPILING_ONLY.isdisjoint(imported)
