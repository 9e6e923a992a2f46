from __future__ import annotations

import dataclasses
import json

import pytest

from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.dsa.program.instructions import Program, Unit, Work
from eqfuse.lowering.dsa.report.trace import trace_events, trace_json
from eqfuse.lowering.dsa.simulate.timing import Timeline, simulate_time

from ..accelerator_programs import DEVICE, layer_program
from ..simulate.test_timing import compute


def timeline() -> Timeline:
    return simulate_time(layer_program(), dataclasses.replace(DEVICE, clock=2e9))


def test_complete_events_have_what_the_format_asks_for() -> None:
    document = json.loads(trace_json(timeline()))
    complete = [each for each in document["traceEvents"] if each["ph"] == "X"]
    assert all(each.keys() >= {"name", "cat", "ts", "dur", "pid", "tid", "args"} for each in complete)
    assert all(each["ts"] >= 0 and each["dur"] >= 0 for each in complete)


def test_an_event_for_each_instruction_on_each_engine() -> None:
    run = timeline()
    found = [each["args"]["instruction"] for each in trace_events(run) if each["ph"] == "X"]
    assert found == [i for i, each in enumerate(run.program.instructions) for _ in each.engines]


def test_times_are_microseconds() -> None:
    run = timeline()
    last = max(each["ts"] + each["dur"] for each in trace_events(run) if each["ph"] == "X")
    assert last == pytest.approx(run.cycles / 2e9 * 1e6)


def test_a_matrix_product_says_its_dataflow() -> None:
    instruction = compute(0, Work(Unit.MME, products=(Product(4, 8, 4990),)))
    events = trace_events(simulate_time(Program("p", "d", 1, (), (instruction,)), DEVICE))
    assert events[-1]["args"]["dataflows"] == ["os"]


def test_processes_and_threads_have_names() -> None:
    run = timeline()
    names = {(each["pid"], each["tid"], each["name"]): each["args"] for each in trace_events(run) if each["ph"] == "M"}
    threads = {(each["pid"], each["tid"]) for each in trace_events(run) if each["ph"] == "X"}
    assert {names[process, thread, "thread_name"]["name"] for process, thread in threads} == {
        str(engine) for engine in run.program.engines()
    }
    assert names[1, 0, "process_name"]["name"] == "cluster 1"


def test_events_of_an_engine_do_not_overlap() -> None:
    ends: dict[int, float] = {}
    for event in trace_events(timeline()):
        if event["ph"] == "X":
            assert event["ts"] >= ends.get(event["tid"], 0.0) - 1e-9
            ends[event["tid"]] = event["ts"] + event["dur"]
