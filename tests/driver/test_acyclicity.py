"""Every choice of a graph is proven acyclic before it is written, by z3 where the e-graph has loops."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from eqfuse.driver.optimize import Result, optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.egraph.loops import Acyclicity, Loops, find_loops
from eqfuse.engine.verification import verify
from eqfuse.extract.extraction import select
from eqfuse.extract.extraction.problem import ExtractionError
from eqfuse.support import solvers
from eqfuse.support.errors import VerificationProcessError
from eqfuse.support.processes.worker_process import WorkerPool, WorkerProcess

from ..engine.models import model, value

VERIFIED = pytest.mark.parametrize("verify", [True, False])
ONCE_VERIFIED = pytest.mark.parametrize("verify", [pytest.param(True, marks=pytest.mark.conformance), False])


def turned() -> onnx.ModelProto:
    """A softmax of a transposition, and that transposed: each of the two can be made from the other."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Softmax", ["t"], ["y"], axis=0),
        helper.make_node("Transpose", ["y"], ["z"], perm=[1, 0]),
    ]
    return model(nodes, [value("x", [4, 5])], ["y", "z"])


def straight() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [4, 5])], ["y"])


def optimized(source: onnx.ModelProto, *, verify: bool, output: Path | None = None) -> Result:
    return optimize_model(source, output, Options(verify=verify))


@VERIFIED
def test_z3_proves_a_choice_in_a_loop(verify: bool) -> None:
    result = optimized(turned(), verify=verify)
    assert result.acyclicity == Acyclicity("z3", 1, 2, 1)
    assert result.model.metadata_props["eqfuse.acyclic"] == "acyclic (z3: 2 e-classes of 1 loop have an order)"


def test_z3_is_not_asked_where_there_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "z3_context", None)
    result = optimized(straight(), verify=False)
    assert result.acyclicity == Acyclicity("no loops", 0, 0, 0)
    assert result.model.metadata_props["eqfuse.acyclic"] == "acyclic (the e-graph has no loops)"


@ONCE_VERIFIED
def test_a_cyclic_choice_is_refused_by_its_cycle(verify: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find_reads_both_ways(*arguments: Any) -> Loops:
        found = find_loops(*arguments)
        return replace(found, reads=(*found.reads, *((owner, child) for child, owner in found.reads)))

    monkeypatch.setattr(select, "find_loops", find_reads_both_ways)
    output = tmp_path / "out.onnx"
    cycle = r"cyclic: (\w+ \(e-class \d+\)) -> \w+ \(e-class \d+\) -> \1; please report this$"
    with pytest.raises(ExtractionError, match=cycle):
        optimized(turned(), verify=verify, output=output)
    assert not output.exists()


@ONCE_VERIFIED
def test_without_an_answer_the_result_says_so(verify: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqfuse.driver.optimize._ORDER_SECONDS", 0.0)
    result = optimized(turned(), verify=verify)
    assert result.acyclicity == Acyclicity("undecided", 1, 2, 1)


class RefusedProcess(WorkerProcess):
    """A process that the system does not start."""

    def _launch(self) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")


def test_without_a_process_it_is_the_verification_that_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerPool(lambda: RefusedProcess("verdict:answer")) as pool:
        monkeypatch.setattr(sys.modules[verify.__module__], "_POOL", pool)
        with pytest.raises(VerificationProcessError, match="verification cannot be started: Permission denied"):
            optimized(turned(), verify=True)
