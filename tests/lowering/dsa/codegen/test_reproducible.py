"""A program is the same however fast the machine is, and whatever was planned before it."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count

import pytest

from eqfuse.costmodels.dsa_device import load_dsa_device, single_cluster
from eqfuse.lowering.dsa.bundle.files import dump_json
from eqfuse.lowering.dsa.clusters.compiler import program_for
from eqfuse.lowering.dsa.codegen.compiler import AcceleratorNetwork, Choices, accelerator_network
from eqfuse.lowering.dsa.codegen.generator import plan_program, write_program
from eqfuse.lowering.dsa.program.instructions import Compute
from eqfuse.lowering.dsa.schedule.clusters import Allocation
from eqfuse.lowering.dsa.schedule.variants import FULL

from ..scheduled import schedule
from ..small_networks import cnn, scheduled_parts, up_sampling

TIGHT = replace(load_dsa_device("stcp920-1mb"), local_buffer=6144, weight_buffer=2048, global_buffer=32768)
"""Some tensors stay in LB, others do not; what the integer program chooses is not what lives longest or costs least."""


def compiled(network: AcceleratorNetwork) -> str:
    return dump_json(program_for(network, TIGHT, Allocation.even(1, 1, 4), Choices(FULL)).generated.program)


def test_it_does_not_depend_on_the_time_that_compiling_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time all clocks show an hour more whenever they are looked at."""
    graph, layers, _ = scheduled_parts(up_sampling(8))
    network = accelerator_network(graph, layers, TIGHT, 4)
    expected = compiled(network)
    for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        hours = count(getattr(time, clock)(), 3600.0)
        monkeypatch.setattr(time, clock, lambda hours=hours: next(hours))
    assert compiled(network) == expected


def test_kernels_have_the_numbers_of_their_first_uses() -> None:
    """The planner asks for kernels of tiles that it does not take, too."""
    graph, layers, _ = scheduled_parts(cnn())
    plan = plan_program(schedule(graph, layers, single_cluster(TIGHT), batch=4, element_size=4), FULL)
    written = write_program(plan, 4).program.instructions
    numbers: dict[str, list[int]] = {}
    for kernel in dict.fromkeys(each.kernel.partition(".")[0] for each in written if isinstance(each, Compute)):
        stem, _, number = kernel.rpartition("_")
        numbers.setdefault(stem, []).append(int(number))
    assert all(each == list(range(len(each))) for each in numbers.values())
