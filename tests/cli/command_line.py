"""The command line as a user meets it, and small models and rule files to give to it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

from eqfuse.cli import main
from eqfuse.driver.json_output import OUTPUTS
from eqfuse.driver.json_output.head import ErrorOutput
from eqfuse.support.json_types import JsonFieldError, convert_json

RECORD = """\
; a + b = a * b, or the like
; @property strength
; @sound exact
; @requires none
; @source derived
; @example (Add a b) => (Mul a b)
"""


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line on standard error, without its prefix."""
        assert self.err.startswith("eqfuse: error: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("eqfuse: error: ").rstrip()


def check_json(line: str, out: str) -> None:
    """Fail if what a command line printed on `--json` has another field, or another type, than its schema."""
    content = json.loads(out)
    command = next((name for name in OUTPUTS if line.startswith(name)), "")  # a mistyped one has errors alone
    problems = []
    for form in (*OUTPUTS.get(command, ()), ErrorOutput):
        try:
            convert_json(content, form)
        except JsonFieldError as error:
            problems.append(f"{form.__name__}: {error}")
        else:
            return
    pytest.fail(f"{line}: what it prints is none of its forms: {'; '.join(problems)}")


@dataclass(frozen=True)
class CommandLine:
    """Runs eqfuse in `folder`, in this process or in one of its own."""

    folder: Path
    captured: pytest.CaptureFixture[str]

    def run(self, *arguments: object) -> Outcome:
        """Run a command in this process."""
        self.captured.readouterr()
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = self.captured.readouterr()
        if "--json" in arguments and out:
            check_json(" ".join(map(str, arguments)), out)
        return Outcome(code, out, err)

    def fail(self, code: int, *arguments: object) -> str:
        """The error of a command that ends with this exit code."""
        outcome = self.run(*arguments)
        assert outcome.code == code, outcome
        return outcome.error

    def spawn(self, *arguments: object, before: Callable[[], None] | None = None, columns: int = 80) -> Outcome:
        """Run a command in a process of its own; `before` runs in it first. What a slow machine says meanwhile is left
        out."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment(columns),
            capture_output=True, text=True, preexec_fn=before, timeout=600,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, re.sub(r"(?m)^ *\d+\.\d s  .*\n", "", done.stderr))

    def pipe(self, *arguments: object, into: str, output: str = "/dev/stdout") -> Outcome:
        """Run a command whose output goes `into` a command of the shell, or to a file."""
        line = f"{shlex.join(self.command(*arguments))} > {output} | {into}"
        done = subprocess.run(line, shell=True, cwd=self.folder, env=self.environment(), capture_output=True, text=True)
        return Outcome(done.returncode, done.stdout, done.stderr)

    def command(self, *arguments: object) -> list[str]:
        """The command as a list for subprocess."""
        return [sys.executable, "-m", "eqfuse", *(str(a) for a in arguments)]

    def environment(self, columns: int = 80) -> dict[str, str]:
        """An environment in which eqfuse can be imported, from sources or installed."""
        paths = os.pathsep.join(p for p in sys.path if p)
        return os.environ | {"PYTHONPATH": paths, "COLUMNS": str(columns), "TERM": "xterm"}

    def model(
        self, name: str, nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str] = (2, 3), **weights: ArrayLike
    ) -> Path:
        """A model from `x` to `y`, both of one shape, written as `name`."""
        tensor = helper.make_tensor_value_info
        stored = [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()]
        ends = [tensor("x", TensorProto.FLOAT, shape)], [tensor("y", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(nodes, "graph", *ends, stored)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return self.write(name, made.SerializeToString())

    def small(self, name: str = "in.onnx") -> Path:
        """Relu twice, then x + 1.5: one Relu too many."""
        nodes = [
            helper.make_node("Relu", ["x"], ["first"]),
            helper.make_node("Relu", ["first"], ["second"]),
            helper.make_node("Add", ["second", "w"], ["y"]),
        ]
        return self.model(name, nodes, w=[[1.5, -0.3, 0.7]])

    def chain(self, length: int, name: str = "in.onnx") -> Path:
        """A chain of products of small matrices: many ways to multiply them."""
        generator = np.random.default_rng(0)
        names = ["x", *(f"h{i}" for i in range(1, length)), "y"]
        nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(length)]
        return self.model(name, nodes, (4, 4), **{f"w{i}": generator.standard_normal((4, 4)) for i in range(length)})

    def write(self, name: str, content: bytes | str) -> Path:
        """A file of this content."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def rule(self, name: str, command: str, record: str = RECORD) -> Path:
        """A rule file with one rule, which stands on line 7."""
        return self.write(name, f"{record}{command}\n")

    def files(self) -> list[str]:
        """The names in the folder."""
        return sorted(path.name for path in self.folder.iterdir())
