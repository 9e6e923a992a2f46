"""``import eqfuse as ort``: what programs of ONNX Runtime use is there, and is not loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import onnxruntime
import pytest

import eqfuse


@pytest.mark.parametrize(
    "name", [name for name in dir(onnxruntime) if not name.startswith("_") and name not in dir(eqfuse)]
)
def test_names_of_onnx_runtime_are_there(name: str) -> None:
    if hasattr(sys.modules.get(f"eqfuse.{name}"), "__path__"):
        pytest.skip("a package of this project has the name")
    assert getattr(eqfuse, name) is getattr(onnxruntime, name)


def test_packages_of_onnx_runtime_are_there() -> None:
    program = "from eqfuse import datasets; print(datasets.__name__)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "onnxruntime.datasets"


def test_the_session_is_one_of_onnx_runtime() -> None:
    assert issubclass(eqfuse.InferenceSession, onnxruntime.InferenceSession)
    assert eqfuse.InferenceSession is not onnxruntime.InferenceSession


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'eqfuse' has no attribute 'no_such_name'"):
        _ = eqfuse.no_such_name
    with pytest.raises(ImportError):
        from eqfuse import _no_such_name  # noqa: F401


def test_importing_loads_nothing() -> None:
    program = "import sys, eqfuse; print({'numpy', 'onnx', 'onnxruntime'} & set(sys.modules) or 'nothing')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "nothing"
