"""Exports of the architectures, each made in the environment of its tool; those that a folder has already stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ARCHITECTURES
from .environments import ENVIRONMENTS, Environment
from .rows import Architecture, Form, Request

_RECORD = "exports.json"


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

    @property
    def environment(self) -> Environment:
        """Where it is made."""
        return ENVIRONMENTS[self.architecture.library]


def export_all(
    forms: Mapping[str, Sequence[Form]], folder: Path, find_python: Callable[[Environment], Path]
) -> Iterator[Export]:
    """Architectures in their forms as files of a folder, in order; a failed export says why and is not tried again.

    `find_python` gives the Python of an environment, and is asked only where something has to be exported; what it
    raises is raised.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record, known = folder / _RECORD, exported_names(folder)
    wanted = [Export(ARCHITECTURES[name], form, folder) for name, each in forms.items() for form in each]
    missing = [each for each in wanted if each.name not in known]
    for environment in dict.fromkeys(each.environment for each in missing):
        python = find_python(environment)
        for export, problem in _export([each for each in missing if each.environment is environment], python):
            known[export.name] = problem
            record.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            print(export.name, problem or "exported", file=sys.stderr, flush=True)
    for export in wanted:
        yield Export(export.architecture, export.form, folder, known[export.name])


def exported_names(folder: Path) -> dict[str, str]:
    """The names of the exports of a folder with what was wrong with each, empty if nothing was."""
    record = folder / _RECORD
    return json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}


def _export(wanted: Sequence[Export], python: Path) -> Iterator[tuple[Export, str]]:
    """Each with the problem of its export, empty if there is none; processes that die are started again."""
    while wanted:
        answered = 0
        for export, answer in zip(wanted, _ask(wanted, python), strict=False):
            yield export, answer.get("error", "")
            answered += 1
        if answered < len(wanted):  # this one ended the process
            yield wanted[answered], "the exporter crashed"
        wanted = wanted[answered + 1 :]


def _ask(exports: Sequence[Export], python: Path) -> Iterator[dict[str, Any]]:
    """The answers in order; fewer where the process died."""
    requests = [Request(each.architecture, each.form, str(each.path.absolute())).as_dict() for each in exports]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    module = f"{Path(__file__).parent.name}.{exports[0].environment.module}"
    with subprocess.Popen(
        [str(python.absolute()), "-m", module], cwd=Path(__file__).parent.parent, env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(requests))
        process.stdin.close()
        for line in process.stdout:
            yield json.loads(line)
