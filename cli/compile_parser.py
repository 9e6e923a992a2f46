"""The options of ``eqfuse compile`` and ``eqfuse tune``. Imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from ..engine.choices import PartitionMethod
from ..lowering.tuning.settings import RunnerName
from .arguments import Commands, command, model, optimization, positive, tolerances

FLOATS = ("float16", "float32", "float64")
DSA_VARIANTS = ("tvm", "astitch", "gb", "lb", "instances", "graphturbo", "full")
DSA_ORDERS = ("better", "bfs", "dfs", "footprint", "best")
"""Names of `lowering/dsa`, which is not imported here."""
FOR_ACCELERATORS = ("batch", "floats", "variant", "order", "per_cluster")
"""What is said about accelerators alone."""


def add_compile(commands: Commands) -> None:  # type: ignore[type-arg]
    """``eqfuse compile``."""
    parser = command(commands, "compile", "compile a model for a processor or an accelerator", ("compile", "compile_"))
    _bundle(parser)
    _accelerator(parser)
    group = parser.add_argument_group("for a search for schedules (see `eqfuse tune`)")
    group.add_argument(
        "--trials", type=positive(int), metavar="N",
        help="measure so many candidates, those of earlier runs counted (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--tuning-limit", type=positive(float), metavar="S", help="begin no more of them after so many seconds"
    )
    _search(group)
    optimization(parser, priced=False)
    _verification(parser)


def add_tune(commands: Commands) -> None:  # type: ignore[type-arg]
    """``eqfuse tune``."""
    parser = command(commands, "tune", "compile a model with schedules that are searched for", ("compile", "tune"))
    _bundle(parser)
    parser.add_argument(
        "--trials", type=positive(int), default=200, metavar="N",
        help="measure so many candidates, those of earlier runs counted (default 200); the same command goes on where "
        "one was stopped",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit", dest="tuning_limit", type=positive(float), metavar="S",
        help="begin no more of them after so many seconds",
    )  # fmt: skip
    _search(parser)
    optimization(parser, priced=False, limited=False)
    _verification(parser)
    parser.set_defaults(**dict.fromkeys(FOR_ACCELERATORS))


def _bundle(parser: argparse.ArgumentParser) -> None:
    model(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="the bundle to write")
    parser.add_argument(
        "--target", default="host", help="this machine, the name of a device file, or dsa-NAME or dsa-FILE.toml for an "
        "accelerator that is simulated (default host); an unknown name lists them",
    )  # fmt: skip
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: the cores of the target)")
    parser.add_argument(
        "--partition",
        choices=get_args(PartitionMethod),
        default="joint",
        help="cut the model into fused kernels; joint: choose graph and kernels together (default joint)",
    )
    parser.add_argument(
        "--no-intensive", dest="intensive", action="store_false", help="one convolution or product in a kernel at most"
    )


def _verification(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(cost="roofline", device="host", as_functions=False, certify=False, certificate=None)
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not compare with the original")
    tolerances(parser)


def _search(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--no-reformer", action="store_true", default=None, help="tune joined kernels from the start, as a whole"
    )
    parser.add_argument(
        "--runner", choices=get_args(RunnerName),
        help="where candidates run: here, on an emulated Arm board, or on devices of --tracker (default: by target)",
    )  # fmt: skip
    parser.add_argument("--tracker", metavar="HOST:PORT", help="TVM's RPC tracker, which knows the devices")
    parser.add_argument("--device-key", metavar="K", help="the kind of device to ask the tracker for")
    parser.add_argument("--cluster", metavar="HOST:PORT", help="a Dask scheduler, whose workers compile candidates")


def _accelerator(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for an accelerator (--target dsa-...)")
    group.add_argument("--batch", type=positive(int), help="samples in all (default: as many as the model takes)")
    group.add_argument(
        "--floats",
        choices=FLOATS,
        help="what floats are stored in (default: as the model has them); in a narrower type than the model's, outputs "
        "may differ by four times what rounding its weights and inputs does",
    )
    group.add_argument(
        "--variant", choices=DSA_VARIANTS, help="full (default), graphturbo, or one of the steps towards it"
    )
    group.add_argument("--order", choices=DSA_ORDERS, help="how to order instances (default: as the variant does)")
    group.add_argument(
        "--per-cluster", type=positive(int), help="samples in one run of a cluster (default: the fastest number)"
    )
