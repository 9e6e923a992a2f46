"""The session gives what ONNX Runtime gives, whoever computes it, and says who does."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

import eqfuse
from eqfuse.driver.session import model_code
from eqfuse.driver.session import session as session_module
from eqfuse.driver.session.session import InferenceSession, SessionReport
from eqfuse.driver.session.sizes import Takeover, hold_forks
from eqfuse.driver.session.verdicts import Verdict, Verdicts, require_equal
from eqfuse.lowering.running.runner import CompiledModel
from eqfuse.support.errors import VerificationError
from eqfuse.support.processor import available_cores

from .conftest import ROWS, Finding

Feeds = dict[str, Any]


def feeds(seed: int = 0, indices: int = 2) -> Feeds:
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((ROWS, 8)).astype(np.float32), "i": np.arange(indices) % 2 * 4}


def wait_until(session: InferenceSession, is_reached: Callable[[SessionReport], bool]) -> None:
    """Until what runs on the side has got so far."""
    limit = time.monotonic() + 60
    while not is_reached(session.report()):
        assert time.monotonic() < limit, str(session.report())
        time.sleep(0.01)


def runs_in_compiled_code(place: int, report: SessionReport) -> bool:
    return report.sizes[place].runs_in == "compiled code"


def is_not_faster(place: int, report: SessionReport) -> bool:
    return report.sizes[place].reason == "not faster"


has_taken_over = partial(runs_in_compiled_code, 0)


def take_over(model: Path, **options: Any) -> InferenceSession:
    """A session whose calls run in compiled code."""
    session = eqfuse.InferenceSession(model, **options)
    for _ in range(model_code.PATIENCE):
        session.run(None, feeds())
    wait_until(session, has_taken_over)
    return session


def check(session: InferenceSession, model: Path, given: Feeds) -> None:
    expected = onnxruntime.InferenceSession(model).run(None, given)
    for value, result in zip(expected, session.run(None, given), strict=True):
        assert value.dtype == result.dtype
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


def test_compiled_code_takes_over(model: Path, finding: Finding) -> None:
    session = take_over(model)
    for seed in range(10):
        check(session, model, feeds(seed))
    (sizes,) = session.report().sizes
    assert sizes.inputs == f"x: float32[{ROWS}, 8], i: int64[2]"
    assert (sizes.calls, sizes.compiled_calls, sizes.trials) == (model_code.PATIENCE + 10, 7, 3)
    assert [job.threads for job in finding.jobs] == [available_cores()]


def test_no_call_waits_for_the_compiler(model: Path, finding: Finding) -> None:
    finding.may_answer.clear()
    session = eqfuse.InferenceSession(model)
    for seed in range(20):
        check(session, model, feeds(seed))
    assert session.report().sizes[0].reason == "being compiled"
    finding.may_answer.set()
    wait_until(session, has_taken_over)


def test_the_next_session_finds_the_verdict(model: Path, finding: Finding) -> None:
    take_over(model)
    take_over(model)
    assert len(finding.jobs) == 1


def test_another_version_has_verdicts_of_its_own(
    model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_over(model)
    monkeypatch.setattr(model_code, "source_digest", lambda *_: "another version")
    take_over(model)
    assert len({job.key for job in finding.jobs}) == 2


def test_further_sizes_share_code_of_all_sizes(model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_code, "SHARE", 0)
    session = take_over(model)
    for place, indices in enumerate((1, 3, 5), 1):
        for seed in range(model_code.PATIENCE):
            check(session, model, feeds(seed, indices))
        wait_until(session, partial(runs_in_compiled_code, place))
        for seed in range(10):
            check(session, model, feeds(seed, indices))
    assert [job.typical for job in finding.jobs] == [None, ("N=1",)]
    assert [size.compiled_calls for size in session.report().sizes] == [0, 7, 7, 7]


def test_sizes_that_code_of_all_sizes_does_not_serve_get_their_own(
    model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_code, "SHARE", 0)
    finding.verdict = Verdict(False, "not faster")
    session = eqfuse.InferenceSession(model)
    for place, indices in enumerate((1, 3)):
        for _ in range(model_code.PATIENCE):
            check(session, model, feeds(indices=indices))
        wait_until(session, partial(is_not_faster, place))
    assert [job.typical for job in finding.jobs] == [None, ("N=3",), None]


def test_who_calls_with_ever_new_sizes_stays_with_onnx_runtime(model: Path, finding: Finding) -> None:
    session = eqfuse.InferenceSession(model)
    for indices in range(10):
        for _ in range(model_code.PATIENCE):
            check(session, model, feeds(indices=indices))
    wait_until(session, lambda report: len(finding.jobs) == 1)
    assert {size.reason for size in session.report().sizes[1:]} == {"waits for more calls"}


def test_only_some_sizes_are_looked_at(model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MOST_SIZES", 3)
    session = eqfuse.InferenceSession(model)
    for indices in range(5):
        check(session, model, feeds(indices=indices))
    report = session.report()
    assert (len(report.sizes), report.other_calls) == (3, 2)


def test_compiled_code_that_is_wrong_is_given_up(
    model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = take_over(model)
    run = CompiledModel.run

    def run_wrongly(self: CompiledModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: array + 1 for name, array in run(self, inputs).items()}

    monkeypatch.setattr(CompiledModel, "run", run_wrongly)
    check(session, model, feeds())
    (sizes,) = session.report().sizes
    assert sizes.runs_in == "ONNX Runtime"
    assert "differs from ONNX Runtime's" in sizes.reason
    kept = Verdicts().read(finding.jobs[0].key)
    assert kept is not None
    assert not kept.takes_over


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_code_that_is_slower_is_given_up(
    model: Path, slow_bundle: Path, finding: Finding, threads: int
) -> None:
    finding.bundle = slow_bundle
    options = eqfuse.SessionOptions()
    options.intra_op_num_threads = threads
    session = take_over(model, sess_options=options)
    for seed in range(40):
        check(session, model, feeds(seed))
    (sizes,) = session.report().sizes
    assert (sizes.runs_in, sizes.reason) == ("ONNX Runtime", "slower here")
    assert sizes.speed < 0.5


def test_speed_is_that_of_warm_calls(model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each first call of a block takes a hundred times as long as those behind it."""
    costs = {"runtime": 6, "compiled": 2}
    clock = SimpleNamespace(now=0, last="")

    def spend(name: str) -> None:
        clock.now += costs[name] * (1 if clock.last == name else 100)
        clock.last = name

    run = CompiledModel.run

    def run_compiled(self: CompiledModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
        spend("compiled")
        return run(self, inputs)

    def read_clock() -> float:
        return float(clock.now) * 1e-6

    monkeypatch.setattr("eqfuse.driver.session.sizes.time", SimpleNamespace(thread_time=read_clock))
    monkeypatch.setattr(CompiledModel, "run", run_compiled)
    takeover = Takeover(eqfuse.load(finding.bundle, 1), speed=1.0, steps={})
    session = onnxruntime.InferenceSession(model)

    def runtime(names: Sequence[str], given: Mapping[str, Any]) -> list[Any]:
        spend("runtime")
        results: list[Any] = session.run(names, given)
        return results

    def find(given: Mapping[str, Any]) -> None:
        clock.now += 1  # what a session does before each call counts

    for seed in range(20):
        takeover.run(runtime, ["y"], feeds(seed), find)
    assert takeover.speed == pytest.approx(6 / (2 + 1))


def test_compiled_code_that_fails_is_given_up(model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    session = take_over(model)
    for seed in range(2):  # trials
        check(session, model, feeds(seed))

    def fail(self: CompiledModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
        raise eqfuse.EqfuseError("no memory")

    monkeypatch.setattr(CompiledModel, "run", fail)
    check(session, model, feeds())
    assert session.report().sizes[0].reason == "failed: no memory"


def test_integers_beyond_those_compared_are_for_onnx_runtime(model: Path, finding: Finding) -> None:
    session = take_over(model)
    for seed in range(10):
        check(session, model, feeds(seed))
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(None, {**feeds(), "i": np.array([0, 5])})
    check(session, model, {**feeds(), "i": np.array([0, -1])})
    assert has_taken_over(session.report())


def test_other_calls_are_for_onnx_runtime(model: Path, finding: Finding) -> None:
    session = take_over(model)
    given = feeds()
    session.run(None, given, eqfuse.RunOptions())
    session.run(["y"], {**given, "x": given["x"].tolist()})
    with pytest.raises(Exception, match="input data type"):
        session.run(None, {**given, "x": given["x"].astype(np.float64)})
    with pytest.raises(ValueError, match="missing"):
        session.run(None, {"x": given["x"]})
    with pytest.raises(Exception, match="Invalid output name"):
        session.run(["nothing"], given)
    assert session.report().other_calls == 5
    (z,) = session.run(["z"], given)
    assert z.shape == (2, 2)


def test_eight_threads_call_one_session(model: Path, finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    # a trial reads the clock three times: compiled code takes half as long, whoever has the two cores meanwhile
    reads = threading.local()

    def clock() -> float:
        reads.number = getattr(reads, "number", -1) + 1
        return (0.0, 2.0, 3.0)[reads.number % 3]

    times = SimpleNamespace(perf_counter=clock, thread_time=clock)
    monkeypatch.setattr("eqfuse.driver.session.sizes.time", times)
    session = eqfuse.InferenceSession(model)
    runtime = onnxruntime.InferenceSession(model)
    start = threading.Barrier(8)

    def call(thread: int) -> None:
        start.wait()
        for number in range(200):
            given = feeds(1000 * thread + number)
            for value, result in zip(runtime.run(None, given), session.run(None, given), strict=True):
                np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(call, thread) for thread in range(8)]:
            each.result()
    wait_until(session, has_taken_over)
    assert len(finding.jobs) == 1
    assert session.report().sizes[0].calls == 1600


def run_in_fork(session: InferenceSession, model: Path) -> int:
    """The exit code of a copy of this process that calls the session, by all ways."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            binding = session.io_binding()
            for name, array in feeds().items():
                binding.bind_cpu_input(name, array)
            binding.bind_output("y")
            session.run_with_iobinding(binding)
            for seed in range(10):
                check(session, model, feeds(seed))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is what is tested
def test_forks_open_what_they_need_anew(model: Path, finding: Finding) -> None:
    options = eqfuse.SessionOptions()
    options.intra_op_num_threads = 2
    session = take_over(model, sess_options=options)
    assert run_in_fork(session, model) == 0
    check(session, model, feeds())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_the_model_is_compiled_compiles_it(model: Path, finding: Finding) -> None:
    finding.may_answer.clear()
    session = eqfuse.InferenceSession(model)
    for _ in range(model_code.PATIENCE):
        session.run(None, feeds())
    wait_until(session, lambda report: bool(finding.jobs))
    assert run_in_fork(session, model) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_fork_takes_a_lock_along_that_a_thread_holds() -> None:
    """As those of modules are, while a thread imports them: nobody would ever free it in the copy."""
    lock, is_held = threading.Lock(), threading.Event()

    def hold() -> None:
        with hold_forks(), lock:
            is_held.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    child = os.fork()
    if child == 0:
        os._exit(not lock.acquire(timeout=10))
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_cache_that_cannot_be_written_is_no_harm(model: Path, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    session = eqfuse.InferenceSession(model)
    for seed in range(model_code.PATIENCE):
        check(session, model, feeds(seed))
    wait_until(session, lambda report: "cannot be written" in report.sizes[0].reason)
    check(session, model, feeds())


def test_a_file_that_was_changed_is_not_compiled(model: Path, finding: Finding, tmp_path: Path) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(model.read_bytes())
    session = eqfuse.InferenceSession(copy)
    copy.write_bytes(model.read_bytes() + b"\x00")
    for seed in range(model_code.PATIENCE):
        check(session, model, feeds(seed))
    wait_until(session, lambda report: "was changed" in report.sizes[0].reason)
    assert not finding.jobs


def test_sessions_are_freed(model: Path, finding: Finding) -> None:
    session = take_over(model)
    check(session, model, feeds())
    kept = weakref.ref(session)
    gc.disable()
    try:
        limit = time.monotonic() + 60
        del session
        while kept() is not None and time.monotonic() < limit:  # the thread that prepared it may just be ending
            time.sleep(0.01)
        assert kept() is None
    finally:
        gc.enable()


def test_models_in_memory(model: Path, finding: Finding) -> None:
    session = eqfuse.InferenceSession(model.read_bytes())
    for seed in range(model_code.PATIENCE):
        check(session, model, feeds(seed))
    wait_until(session, has_taken_over)
    assert isinstance(finding.jobs[0].model, bytes)
    check(session, model, feeds())


def test_a_profiled_session_and_a_switch_leave_all_to_onnx_runtime(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = eqfuse.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    profiled = eqfuse.InferenceSession(model, options)
    check(profiled, model, feeds())
    assert profiled.report().note
    assert Path(profiled.end_profiling()).is_file()
    monkeypatch.setenv(session_module.SWITCH, "off")
    assert "EQFUSE_SESSION=off" in str(eqfuse.InferenceSession(model).report())


def test_errors_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="doesn't exist"):
        eqfuse.InferenceSession(tmp_path / "none.onnx")
    with pytest.raises(TypeError, match="Unable to load from type"):
        eqfuse.InferenceSession(5)


def test_steps_of_a_quantised_model_are_no_difference(cache: Path) -> None:
    verdicts, expected = Verdicts(), {"y": np.array([1.0, 2.0], np.float32)}
    verdicts.keep("key", Verdict(True, "compiled", 2.0, steps={"y": 0.3}))
    kept = verdicts.read("key")
    assert kept is not None
    require_equal(expected, {"y": np.array([1.0, 2.25], np.float32)}, kept.steps)
    others: list[list[float]] = [[1.0, 2.5], [1.0], [1.0, np.nan]]
    for other in others:
        with pytest.raises(VerificationError, match="output 'y' differs"):
            require_equal(expected, {"y": np.array(other, np.float32)}, kept.steps)


def test_a_refusal_is_forgotten_after_a_week(cache: Path) -> None:
    verdicts = Verdicts()
    verdicts.keep("key", Verdict(False, "slow"))
    assert verdicts.read("key") == Verdict(False, "slow")
    (path,) = cache.rglob("verdict.json")
    week_ago = time.time() - 8 * 24 * 3600
    os.utime(path, (week_ago, week_ago))
    assert verdicts.read("key") is None
