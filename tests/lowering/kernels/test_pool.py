"""Worker processes that compile kernels: one that dies or refuses costs its kernel alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tvm import ir, te

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.kernels import worker
from eqfuse.lowering.kernels.messages import Request
from eqfuse.lowering.kernels.pool import compile_requests
from eqfuse.lowering.schedules import Scheduled


def request(name: str, folder: Path, prim_func: str | None = None) -> Request:
    x = te.placeholder((4,), "float32", "x")
    function = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0, "y")])
    text = prim_func if prim_func is not None else ir.save_json(function)
    return Request(name, text, load_device("host"), target_of("host", 1).description, str(folder / f"{name}.o"))


@pytest.mark.conformance
def test_each_kernel_is_an_object_file(tmp_path: Path) -> None:
    answers = list(compile_requests([request(name, tmp_path) for name in "abc"], 2))
    assert sorted(answer.name for answer in answers if answer.problem is None) == ["a", "b", "c"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.o", "b.o", "c.o"]


@pytest.mark.conformance
def test_one_that_cannot_be_compiled_costs_no_other(tmp_path: Path) -> None:
    requests = [request("bad", tmp_path, "no JSON"), request("good", tmp_path)]
    problems = {answer.name: answer.problem for answer in compile_requests(requests, 1)}
    assert problems["good"] is None
    assert problems["bad"] is not None


@pytest.mark.conformance
def test_a_process_that_dies_is_started_again(tmp_path: Path) -> None:
    crash = Request("crash", "", load_device("host"), _Exit(), str(tmp_path / "crash.o"))
    problems = {answer.name: answer.problem for answer in compile_requests([crash, request("good", tmp_path)], 1)}
    assert problems == {"crash": "the compiler crashed (exit code 7)", "good": None}


def test_what_a_plain_schedule_recovered_from_is_said(tmp_path: Path) -> None:
    target: Any = _ExitOnce(str(tmp_path / "crashed"), request("good", tmp_path).target)
    fragile = replace(request("good", tmp_path), target=target)
    (answer,) = compile_requests([fragile], 1)
    assert (answer.problem, answer.recovered) == (None, "the compiler crashed (exit code 7)")


def test_a_rule_whose_schedule_cannot_be_compiled_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(scheduled: Scheduled, of: Request) -> None:
        if scheduled.rule == "pointwise":
            raise ValueError("an integer is too large")

    monkeypatch.setattr(worker, "_build", refuse)
    answer = worker.compile_kernel(request("good", tmp_path))
    assert (answer.rule, answer.failed) == ("fallback", ("pointwise: ValueError: an integer is too large",))


@dataclass(frozen=True)
class _ExitOnce:
    """Ends the first process that unpickles it, and is the target for the next."""

    marker: str
    target: Any

    def __reduce__(self) -> tuple[object, tuple[str, Any]]:
        return _exit_once, (self.marker, self.target)


def _exit_once(marker: str, target: Any) -> Any:
    import os

    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(7)
    return target


class _Exit:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        import os

        return os._exit, (7,)
