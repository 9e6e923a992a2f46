"""Halve and double the figures of an accelerator that are assumed, let its arrays load ahead, and tell which speed-ups
change.

The programs of a bundle's network in several variants are made once, for the device as it is, and simulated on devices
that differ in one figure each: so the table says how much a figure matters for given programs, not what programs made
for it would reach.

    python -m eqfuse.benchmarks.accelerators.sensitivity BUNDLE
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from eqfuse.costmodels.dsa_device import DsaDevice
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.dsa.back_end import section_of
from eqfuse.lowering.dsa.bundle.files import read_network
from eqfuse.lowering.dsa.clusters.compiler import program_for
from eqfuse.lowering.dsa.codegen.compiler import Choices
from eqfuse.lowering.dsa.program.instructions import Program
from eqfuse.lowering.dsa.schedule.variants import VARIANTS
from eqfuse.lowering.dsa.simulate.time_report import report
from eqfuse.lowering.dsa.simulate.timing import simulate_time
from eqfuse.support.errors import EqfuseError

BASELINES = ("tvm", "astitch", "graphturbo")
OURS = "full"
FACTORS = (0.5, 2.0)


def other_devices(device: DsaDevice) -> Iterator[tuple[str, DsaDevice]]:
    """The device as it is, then with one figure halved or doubled, or arrays that load ahead, and what that is."""
    yield "as it is", device
    for factor in FACTORS:
        yield f"clock x {factor:g}", replace(device, clock=factor * device.clock)
        yield f"DDR's bandwidth x {factor:g}", replace(device, ddr_bandwidth=factor * device.ddr_bandwidth)
        yield f"GB's bandwidth x {factor:g}", replace(device, global_bandwidth=factor * device.global_bandwidth)
        yield f"LB's bandwidth x {factor:g}", replace(device, local_bandwidth=factor * device.local_bandwidth)
        yield f"latency of DMA x {factor:g}", replace(device, dma_latency=factor * device.dma_latency)
        yield f"latency of a hoist x {factor:g}", replace(device, hoist_latency=factor * device.hoist_latency)
        units = tuple(replace(unit, rows=max(1, round(factor * unit.rows))) for unit in device.units)
        yield f"rows of units x {factor:g}", replace(device, units=units)
    units = tuple(replace(unit, loads_ahead=unit.kind == "matrix") for unit in device.units)
    yield "arrays load ahead", replace(device, units=units)


def print_table(programs: dict[str, Program], device: DsaDevice) -> None:
    """A Markdown table of speed-ups, and of the bound over the cycles."""
    print(f"| {device.name} | {' | '.join(f'{OURS} / {name}' for name in BASELINES)} | bound / cycles |")
    print(f"| --- |{' ---: |' * (len(BASELINES) + 1)}")
    for name, other in other_devices(device):
        runs = {variant: simulate_time(program, other) for variant, program in programs.items()}
        gains = (f"{runs[baseline].cycles / runs[OURS].cycles:.2f}x" for baseline in BASELINES)
        ratio = report(runs[OURS]).as_json()["lower_bound"]["ratio"]
        print(f"| {name} | {' | '.join(gains)} | {ratio:.2f} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile --target dsa-NAME` wrote")
    options = parser.parse_args()
    try:
        section = section_of(read_manifest(options.bundle).dsa, str(options.bundle))
        network = read_network(options.bundle)
        made = {
            name: program_for(network, section.device, section.allocation, Choices(VARIANTS[name]))
            for name in (*BASELINES, OURS)
        }
    except EqfuseError as error:
        sys.exit(str(error))
    programs = {name: each.first.program for name, each in made.items()}
    print_table(programs, made[OURS].timeline.device)


if __name__ == "__main__":
    main()
