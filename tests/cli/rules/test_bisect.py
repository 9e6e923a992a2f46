"""``eqfuse bisect``, and what ``optimize`` says of the rules that it finds."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.engine.verification import verify
from eqfuse.support.minimal_failure import minimal_failure
from eqfuse.support.processes.worker_process import WorkerPool, WorkerProcess

from ..command_line import CommandLine

UNSOUND = '(rewrite (Exp x) (Relu x) :ruleset explore :name "made-up")'
BAD = ("--rules", "bad.egg", "--trust-rules")
ILL_SHAPED = '(rewrite (Transpose x p) x :ruleset explore :name "flat-earth")'


@pytest.fixture
def unsound(eqfuse: CommandLine) -> CommandLine:
    """A model, and a rule that makes it wrong."""
    eqfuse.model("in.onnx", [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])])
    eqfuse.rule("bad.egg", UNSOUND)
    return eqfuse


@pytest.fixture
def ill_shaped(eqfuse: CommandLine) -> CommandLine:
    """A model, and a rule that unites two shapes."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"], perm=[1, 0]),
    ]
    eqfuse.model("in.onnx", nodes)
    eqfuse.rule("bad.egg", ILL_SHAPED)
    return eqfuse


def test_a_wrong_result_is_not_written(unsound: CommandLine) -> None:
    outcome = unsound.run("optimize", "in.onnx", "out.onnx", *BAD)
    assert outcome.code == 3
    assert "first divergent value" in outcome.error
    assert unsound.files() == ["bad.egg", "in.onnx"]


def test_bisect_names_the_unsound_rule(unsound: CommandLine) -> None:
    outcome = unsound.run("bisect", "in.onnx", *BAD)
    assert outcome.code == 3
    assert outcome.out.startswith(f"bad.egg:7:1: rule made-up makes it fail\n{UNSOUND}\n")
    assert "eqfuse bisect" not in outcome.out  # the advice of `optimize`


@pytest.mark.conformance
@pytest.mark.parametrize("command", ["optimize", "bisect"])
def test_three_thousand_operators_in_a_row_are_explained(command: str, eqfuse: CommandLine) -> None:
    """None is handled within another one: Python calls functions a thousand deep."""
    names = ["x", *(f"v{number}" for number in range(2999)), "y"]
    nodes = [
        helper.make_node("Neg", [source], [result]) if place % 2
        else helper.make_node("LeakyRelu", [source], [result], alpha=0.999)
        for place, (source, result) in enumerate(pairwise(names))
    ]  # fmt: skip
    eqfuse.model("in.onnx", nodes)
    eqfuse.rule("bad.egg", '(rewrite (Neg x) x :ruleset simplify :name "made-up")')
    outputs = ["out.onnx"] if command == "optimize" else []
    outcome = eqfuse.run(command, "in.onnx", *outputs, *BAD, "--verify-limit", 3000)
    assert outcome.code == 3
    expected = "first divergent value" if command == "optimize" else "rule made-up makes it fail"
    assert expected in outcome.out + outcome.err


@pytest.mark.conformance
def test_bisect_as_json(unsound: CommandLine) -> None:
    content = json.loads(unsound.run("bisect", "in.onnx", *BAD, "--json").out)
    assert content["rules"] == [{"name": "made-up", "file": "bad.egg:7:1", "text": UNSOUND}]


@pytest.mark.conformance
def test_two_shapes_in_one_class_end_the_run(ill_shaped: CommandLine) -> None:
    outcome = ill_shaped.run("optimize", "in.onnx", "out.onnx", *BAD)
    assert outcome.code == 4
    assert outcome.error.startswith("bad.egg:7:1: rule flat-earth united two terms of different shape")
    assert ill_shaped.files() == ["bad.egg", "in.onnx"]


@pytest.mark.conformance
def test_bisect_names_the_rule_that_unites_two_shapes(ill_shaped: CommandLine) -> None:
    outcome = ill_shaped.run("bisect", "in.onnx", *BAD)
    assert outcome.code == 3
    assert "bad.egg:7:1: rule flat-earth makes it fail" in outcome.out


@pytest.mark.conformance
def test_bisect_finds_the_one_of_several_files(unsound: CommandLine) -> None:
    unsound.rule("good.egg", '(rewrite (Abs (Exp x)) (Exp x) :ruleset simplify :name "exp-is-positive")')
    (unsound.folder / "rules").mkdir()
    for name in ("bad.egg", "good.egg"):
        (unsound.folder / name).rename(unsound.folder / "rules" / name)
    outcome = unsound.run("bisect", "in.onnx", "--rules", "rules", "--trust-rules", "--json")
    assert [rule["name"] for rule in json.loads(outcome.out)["rules"]] == ["made-up"]


@pytest.mark.conformance
def test_nothing_to_find(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.run("bisect", "in.onnx")
    assert (outcome.code, outcome.out, outcome.err) == (0, "in.onnx: the run passes with all rules\n", "")


def test_a_model_that_cannot_be_read_is_no_rules_fault(eqfuse: CommandLine) -> None:
    assert eqfuse.fail(1, "bisect", "missing.onnx") == "missing.onnx: no such file"


NO_RULES_FAULT = "in.onnx: the search ended, since no rule is to blame for this: "


def test_a_process_that_cannot_start_is_no_rules_fault(unsound: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: WorkerProcess) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(WorkerProcess, "_launch", refuse)
    reason = "the process that runs egglog cannot be started: Permission denied"
    assert unsound.fail(1, "bisect", "in.onnx", *BAD) == NO_RULES_FAULT + reason


def kill_this_process(request: object) -> None:
    """What the system does to a process when there is no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.conformance
def test_a_process_that_is_killed_is_no_rules_fault(unsound: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerPool(lambda: WorkerProcess(f"{__name__}:kill_this_process", forks=True)) as pool:
        monkeypatch.setattr(sys.modules[verify.__module__], "_POOL", pool)
        error = unsound.fail(1, "bisect", "in.onnx", *BAD)
    assert error.startswith(f"{NO_RULES_FAULT}in.onnx: verification crashed (SIGKILL)")


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_the_search_finds_exactly_the_guilty(case: tuple[int, set[int]]) -> None:
    count, guilty = case

    def fails(names: Sequence[str]) -> bool:
        return {str(g) for g in guilty} <= set(names)

    assert set(minimal_failure(fails, [str(i) for i in range(count)])) == {str(g) for g in guilty}
