"""One figure of benchmarks/dsa.py: a model of GraphTurbo's Table 2, a variant, and a number of samples per cluster.

A process of its own, so that what goes wrong here goes wrong in one row of the tables. Optimised models and figures are
kept in a folder, under the digest of the sources and of the device that they depend on: a run that was ended goes on
where it was, and never with what other rules or another compiler made.

    python -m eqfuse.benchmarks.accelerators.cell A --variant full --samples 16 --device stcp920
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypedDict

import onnx

from eqfuse.benchmarks.accelerators.graphturbo import MODELS
from eqfuse.costmodels.choices import ACCELERATOR
from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device, single_cluster
from eqfuse.driver.compiler.accelerator import AcceleratorKernels
from eqfuse.driver.compiler.compilation import kernels_of
from eqfuse.driver.optimize import optimize_model
from eqfuse.driver.options import Options
from eqfuse.engine.choices import PartitionMethod
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.dsa.bundle.files import graph_data, graph_of
from eqfuse.lowering.dsa.clusters.compiler import DsaProgram, program_for
from eqfuse.lowering.dsa.codegen.compiler import AcceleratorNetwork, Choices, accelerator_network
from eqfuse.lowering.dsa.network.subgraphs import Layer
from eqfuse.lowering.dsa.program.validate import validate
from eqfuse.lowering.dsa.schedule.clusters import Allocation
from eqfuse.lowering.dsa.schedule.variants import VARIANTS
from eqfuse.lowering.dsa.simulate.time_report import use_by_stage
from eqfuse.lowering.dsa.simulate.timing import simulate_time
from eqfuse.support.errors import EqfuseError
from eqfuse.support.store import source_digest

CACHE = Path("build/dsa")
_OPTIMISING = (
    "benchmarks/accelerators", "benchmarks/measuring", "benchmarks/networks", "benchmarks/table5", "costmodels",
    "driver", "engine", "extract", "ir", "rules", "support",
)  # fmt: skip
"""The packages that an optimised model depends on."""
HALF = 2
"""Bytes of a float: all of Table 2's models run in float16."""
IMAGE_RANK = 4
"""Axes of feature maps: samples, channels, height and width."""


class Stage(TypedDict):
    """The layers whose feature maps have a size, as 28x28 ("" for what has none): the share of the run in which any of
    them runs, and the use of the units in that time (GraphTurbo's figure 17)."""

    size: str
    share: float
    occupied: Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """One simulated run of one cluster on its share of DDR, while the others do the same.

    `throughput` is of all clusters, samples/s; `figures` are those of TimeReport.as_json. `compiling` are the seconds
    to schedule, generate and simulate, `processor` those of them on a processor, `simulating` the simulator's part;
    `memory`, the most bytes that the process had meanwhile. `parts` are the tensors that layers of instances hand on,
    by the level where they are: each instance has its own.
    """

    label: str
    variant: str
    samples: int
    throughput: float
    instructions: int
    stages: list[Stage]
    parts: Mapping[str, int]
    figures: Mapping[str, Any]
    compiling: float
    processor: float
    simulating: float
    memory: int

    @property
    def seconds(self) -> float:
        """Simulated, of one run."""
        return float(self.figures["seconds"])

    @property
    def cycles(self) -> float:
        """Simulated, of one run."""
        return float(self.figures["cycles"])


@dataclass(frozen=True)
class OptimisedNetwork:
    """A model as the rules leave it, partitioned into layers."""

    graph: OperatorGraph
    layers: tuple[Layer, ...]


def optimised(model: onnx.ModelProto, device: str, partition: PartitionMethod = "fuseops") -> OptimisedNetwork:
    """By eqfuse's own pipeline and the device's own costs; without verification, for its speed: values play no role
    here."""
    options = Options(verify=False, partition=partition, intensive=False, device=ACCELERATOR + device)
    return OptimisedNetwork(*kernels_of(optimize_model(model, None, options, lowering=AcceleratorKernels())))


def cached(label: str, device: str, folder: Path) -> OptimisedNetwork:
    """The model of that label for GraphTurbo's number of samples, as the costs of a device leave it; made where the
    folder does not have it.

    Weights are not kept: schedules depend on shapes alone.
    """
    configuration = MODELS[label]
    path = kept_file(folder, f"{label}_{configuration.graphturbo}", device, _OPTIMISING)
    if not path.is_file():
        found = optimised(configuration.build(configuration.graphturbo), device, configuration.partition)
        _store(path, json.dumps({"graph": graph_data(found.graph), "layers": found.layers}))
    data = json.loads(path.read_text(encoding="utf-8"))
    return OptimisedNetwork(graph_of(data["graph"]), tuple(map(tuple, data["layers"])))


def kept_file(folder: Path, name: str, device: str, packages: tuple[str, ...]) -> Path:
    """Where something is kept that depends on a device and on the sources of some packages."""
    digest = sha256(f"{load_dsa_device(device)!r} {source_digest(*packages)}".encode()).hexdigest()
    return folder / f"{name}_{Path(device).stem}_{digest[:12]}.json"


def kept(label: str, device: str, folder: Path, variant: str, samples: int, check: bool) -> str:
    """The figures as JSON, of an earlier process if the folder has them. Raises DsaError, ProgramError."""
    name = "_".join([label, variant, str(samples), *(["validated"] if check else [])])
    path = kept_file(folder / "figures", name, device, (*_OPTIMISING, "lowering"))
    if not path.is_file():
        size, network = MODELS[label].float_bytes, cached(label, device, folder)
        run = measured(network, load_dsa_device(device), variant, samples, label, check, size)
        _store(path, json.dumps(asdict(run)))
    return path.read_text(encoding="utf-8")


def _store(path: Path, text: str) -> None:
    """All at once, for whoever reads it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def measured(
    found: OptimisedNetwork, device: DsaDevice, variant: str, samples: int, name: str, check: bool,
    float_bytes: int = HALF,
) -> Run:  # fmt: skip
    """Schedule, generate and simulate; `check` validates the program too. Raises DsaError, ProgramError."""
    began, processor = time.perf_counter(), time.process_time()
    network = accelerator_network(found.graph, found.layers, device, float_bytes)
    made = _program(network, device, variant, samples, name)
    compiling, processor = time.perf_counter() - began, time.process_time() - processor
    memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cluster = single_cluster(device)
    began = time.perf_counter()
    simulate_time(made.generated.program, cluster)
    simulating = time.perf_counter() - began
    if check:
        validate(made.generated.program, cluster)
    return Run(
        label=name,
        variant=variant,
        samples=samples,
        throughput=device.clusters * made.report.throughput,
        instructions=len(made.generated.program.instructions),
        stages=_stages(made),
        parts={level.value: count for level, count in Counter(made.generated.residence.homes.values()).items()},
        figures=made.report.as_json(),
        compiling=compiling,
        processor=processor,
        simulating=simulating,
        memory=memory,
    )


def _stages(made: DsaProgram) -> list[Stage]:
    network = made.generated.network
    values = list(zip(network.graph.values, network.shapes, strict=True))
    sizes = {value.name: shape[2:] if len(shape) == IMAGE_RANK else () for value, shape in values}
    stages = list(dict.fromkeys(sizes[value.name] for value, _ in values if value.producer is not None))
    uses = use_by_stage(made.timeline, {name: stages.index(size) for name, size in sizes.items() if size in stages})
    return [
        Stage(size="x".join(map(str, size)), share=use.share, occupied={u.value: share for u, share in use.occupied})
        for size, use in zip(stages, uses, strict=True)
        if use.share
    ]


def _program(network: AcceleratorNetwork, device: DsaDevice, variant: str, samples: int, name: str) -> DsaProgram:
    allocation = Allocation.even(1, device.clusters, samples)
    return program_for(network, device, allocation, Choices(VARIANTS[variant]), name)


def command(
    label: str, device: str, cache: Path, variant: str = "", samples: int = 0, check: bool = False
) -> list[str]:
    """What starts this process; without a variant it only optimises and keeps the model."""
    chosen = ["--variant", variant, "--samples", str(samples)] if variant else []
    program = [sys.executable, "-P", "-m", "eqfuse.benchmarks.accelerators.cell"]
    start = [*program, label, "--device", device, "--cache", str(cache)]
    return [*start, *chosen, *(["--validate"] if check else [])]


def main() -> None:
    """Command line: the figures as JSON on standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("label", choices=MODELS)
    parser.add_argument("--variant", choices=VARIANTS, help="default: only optimise and keep the model")
    parser.add_argument("--samples", type=int, help="per cluster (default: GraphTurbo's of Table 2)")
    parser.add_argument("--device", default="stcp920")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="of optimised models and figures")
    parser.add_argument("--validate", action="store_true", help="check that the program keeps to the device's rules")
    given = parser.parse_args()
    try:
        if given.variant:
            samples = given.samples or MODELS[given.label].graphturbo
            print(kept(given.label, given.device, given.cache, given.variant, samples, given.validate))
        else:
            cached(given.label, given.device, given.cache)
    except EqfuseError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
