"""Clients that call one contestant at once: every call counts, and each client makes one at least."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.lowering.running import throughput
from eqfuse.lowering.running.throughput import Service, Throughput, serve_in_turns
from eqfuse.lowering.running.turns import quantile


def test_clients_call_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "SLICE", 0.0)
    meeting = threading.Barrier(3, timeout=10)
    services = serve_in_turns({"a": meeting.wait}, clients=3, slices=2)
    assert [len(service.calls) for service in services["a"]] == [3, 3]


def test_contestants_alternate_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "SLICE", 0.0)
    calls: list[str] = []
    serve_in_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, clients=1, slices=2)
    assert "".join(calls) == "ab" + "ab" + "ba"  # the first two warm up


def test_a_call_that_fails_ends_the_measurement() -> None:
    def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        serve_in_turns({"a": fail}, clients=2, slices=1)


def test_the_rate_is_of_all_clients() -> None:
    served = Throughput.of([Service((0.5, 0.5), 0.5), Service((0.25, 0.25, 0.25, 0.25), 0.5)])
    assert (served.rate.median, served.p50, served.p99) == (6.0, 0.25, 0.5)


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_least_number_that_enough_do_not_exceed(numbers: list[float], share: float) -> None:
    bound = quantile(numbers, share)
    assert sum(number <= bound for number in numbers) >= share * len(numbers) - 1e-6
    assert sum(number < bound for number in numbers) < share * len(numbers) + 1e-6
