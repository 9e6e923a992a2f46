"""Exports of the architectures, made by a Python that has PyTorch; those that a folder has already stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqfuse.support.errors import EqfuseError

from . import ARCHITECTURES
from .rows import Architecture, Form, Request

PACKAGES = ("torch==2.13.0", "torchvision==0.28.0", "timm==1.0.31", "transformers==5.24.0", "onnx==1.23.2",
            "onnxscript==0.7.2", "onnxruntime==1.32.0")  # fmt: skip
"""What the environment has that exports."""
_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch without CUDA is."""
_RECORD = "exports.json"


class ExportError(EqfuseError):
    """There is no environment that exports, or an export fails."""


@dataclass(frozen=True)
class Export:
    """An architecture in one form, and its file. `problem` says why there is none, if so."""

    architecture: Architecture
    form: Form
    folder: Path
    problem: str = ""

    @property
    def name(self) -> str:
        """Of the architecture and the form."""
        return f"{self.architecture.name}.{self.form.suffix}"

    @property
    def path(self) -> Path:
        """Where the model is."""
        return self.folder / f"{self.name}.onnx"


def make_environment(folder: Path) -> Path:
    """The Python of an environment in this folder that has the packages; it is made once, which takes minutes.

    Raises ExportError where pip cannot.
    """
    python = folder / "bin" / "python"
    if python.exists():
        return python
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = (
        [sys.executable, "-m", "venv", str(folder)],
        [*install, "--extra-index-url", _INDEX, *PACKAGES],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            python.unlink(missing_ok=True)
            raise ExportError(f"cannot make {folder}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return python


def export_all(forms: Mapping[str, Sequence[Form]], folder: Path, python: Path) -> Iterator[Export]:
    """Architectures in their forms as files of a folder, in order; a failed export says why and is not tried again.

    Raises ExportError where the Python has no PyTorch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / _RECORD
    known: dict[str, str] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    wanted = [Export(ARCHITECTURES[name], form, folder) for name, each in forms.items() for form in each]
    missing = [each for each in wanted if each.name not in known]
    while missing:
        answered = 0
        for export, answer in zip(missing, _ask([_request(each) for each in missing], python), strict=False):
            known[export.name] = answer.get("error", "")
            record.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            print(export.name, known[export.name] or "exported", file=sys.stderr, flush=True)
            answered += 1
        if answered < len(missing):  # this one ended the process
            known[missing[answered].name] = "the exporter crashed"
        missing = missing[answered + 1 :]
    for export in wanted:
        yield Export(export.architecture, export.form, folder, known[export.name])


def _request(export: Export) -> dict[str, Any]:
    return Request(export.architecture, export.form, str(export.path.absolute())).as_dict()


def _ask(requests: Sequence[Mapping[str, Any]], python: Path) -> Iterator[dict[str, Any]]:
    """The answers in order; fewer where the process died."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python.absolute()), "-m", f"{Path(__file__).parent.name}.torch_side.export"]
    with subprocess.Popen(
        command, cwd=Path(__file__).parent.parent, env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(requests))
        process.stdin.close()
        for line in process.stdout:
            yield json.loads(line)
