"""Functions in another process: results, errors, crashes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from eqfuse.lowering.base.errors import BundleError, CrashError, LoweringError
from eqfuse.lowering.bundle.check import call_for_verdict
from eqfuse.lowering.bundle.isolation import NO_LIMIT, call_isolated
from eqfuse.lowering.plan.kernel_facts import read_table
from eqfuse.lowering.plan.manifest import LIBRARY
from eqfuse.lowering.running.isolated_model import IsolatedKernels, IsolatedModel
from eqfuse.support.errors import UsageError, VerificationError

from ..small_models import chain, expected, random_inputs


def test_another_process_calls_the_function() -> None:
    assert call_isolated(NO_LIMIT, os.getpid) != os.getpid()


def test_the_process_is_kept() -> None:
    assert call_isolated(NO_LIMIT, os.getpid) == call_isolated(NO_LIMIT, os.getpid)


def test_calls_at_once_have_processes_of_their_own() -> None:
    both = threading.Barrier(2)
    returned: list[int] = []

    def call() -> None:
        both.wait()
        call_isolated(NO_LIMIT, time.sleep, 0.2)
        returned.append(1)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert returned == [1, 1]


def test_relative_paths_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert call_isolated(NO_LIMIT, os.getcwd) == str(tmp_path / name)


def test_an_error_for_the_user_comes_back_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        IsolatedModel(tmp_path / "build").run({})


def test_another_exception_is_one_line() -> None:
    with pytest.raises(LoweringError, match=r"^ValueError: invalid literal for int\(\)"):
        call_isolated(NO_LIMIT, int, "two\nthree")


def test_a_crash_is_an_error_and_the_next_call_is_answered() -> None:
    with pytest.raises(CrashError, match=r"^crashed \(SIGABRT\)$"):
        call_isolated(NO_LIMIT, os.abort)
    assert call_isolated(NO_LIMIT, abs, -1) == 1


def test_what_hangs_is_ended() -> None:
    with pytest.raises(CrashError, match=r"^took longer than 0.1 s$"):
        call_isolated(0.1, time.sleep, 1000)


def test_a_model_runs_elsewhere_as_it_does_here(plain_bundle: Path) -> None:
    model, inputs = IsolatedModel(plain_bundle), random_inputs(chain())
    np.testing.assert_allclose(model(**inputs), expected(chain(), inputs)["y"], rtol=1e-5, atol=1e-6)


def test_inputs_that_do_not_fit_are_refused(plain_bundle: Path) -> None:
    with pytest.raises(UsageError, match="input 'x' is missing"):
        IsolatedModel(plain_bundle).run({})


def test_a_kernel_that_is_called_wrongly_is_an_error(plain_bundle: Path) -> None:
    kernels = IsolatedKernels(plain_bundle / LIBRARY, 1, NO_LIMIT)
    with pytest.raises(LoweringError):
        kernels.run(read_table(plain_bundle)[0].symbol, [np.zeros(1, np.float32)], [])


def test_an_original_that_never_ends_is_given_up_at_the_limit() -> None:
    with pytest.raises(VerificationError, match=r"verification took longer than 0\.5 s; --verify-limit gives it more"):
        call_for_verdict(0.5, time.sleep, 60.0)


def test_an_original_that_crashes_is_named() -> None:
    with pytest.raises(VerificationError, match=r"verification crashed \(SIGABRT\) while it ran the original model"):
        call_for_verdict(60.0, os.abort)
