"""Programs and packages that tests run with eqfuse in the place of ONNX Runtime."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

SECONDS = 600
"""How long a program may take to see compiled code take over, on a machine that has other work."""


def install(names: Sequence[str], folder: Path, *options: str) -> None:
    """Install packages into a folder; the test is skipped where they cannot be had."""
    command = [sys.executable, "-m", "pip", "install", "-q", *options, "--target", str(folder), *names]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"{', '.join(names)} cannot be had: {result.stderr.strip()[-200:]}")


def exchange_import(text: str) -> str:
    """The program with eqfuse imported in the place of ONNX Runtime."""
    text = re.sub(r"^( *)import onnxruntime as", r"\1import eqfuse as", text, flags=re.MULTILINE)
    text = re.sub(r"^( *)import onnxruntime$", r"\1import eqfuse as onnxruntime", text, flags=re.MULTILINE)
    return re.sub(r"^( *)from onnxruntime import", r"\1from eqfuse import", text, flags=re.MULTILINE)
