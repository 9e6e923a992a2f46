"""The options of every command. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from .._version import __version__
from ..engine.choices import PartitionMethod
from ..rules.vocabulary import PROPERTIES, SOUNDNESS
from ..support.text import printable
from .arguments import (
    EXIT_CODES,
    Commands,
    command,
    given_inputs,
    model,
    not_negative,
    optimization,
    positive,
    pricing,
    rule_files,
    shapes,
    tolerances,
)
from .compile_parser import DSA_VARIANTS, add_compile, add_tune


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; the parsed arguments carry `command`, what to run."""
    parser = _Parser(
        prog="eqfuse",
        description="Rewrites ONNX models by equality saturation under algebraic rules kept as files.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"eqfuse {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (
        _optimize, add_compile, add_tune, _run, _bench, _verify, _inspect, _diff, _bisect, _rules, _profile, _device,
    ):  # fmt: skip
        add(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that takes the optional `out` behind options too."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        # argparse settles an optional positional when it meets the one before it
        known, rest = super().parse_known_args(args, namespace)
        if rest and getattr(known, "out", "") is None and not rest[0].startswith("-"):
            known.out = Path(rest.pop(0))
        return known, rest

    def error(self, message: str) -> NoReturn:
        self.exit(2, printable(f"eqfuse: error: {message}; see {self.prog} --help\n"))


def _optimize(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = command(commands, "optimize", "rewrite a model into a cheaper equivalent one", ("optimize", "optimize"))
    model(parser)
    parser.add_argument("out", nargs="?", type=Path, help="the file to write (or -o)")
    parser.add_argument("-o", "--output", type=Path, help="the file to write; without one, only report")
    optimization(parser)
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not compare result and original")
    parser.add_argument(
        "--partition",
        choices=get_args(PartitionMethod),
        default="none",
        help="cut the result into fused sub-graphs; joint: choose graph and sub-graphs together (default none)",
    )
    parser.add_argument("--as-functions", action="store_true", help="write each sub-graph as a local function")
    parser.add_argument("--certify", action="store_true", help="have z3 check that the sub-graphs are acyclic")
    parser.add_argument(
        "--report", type=Path, metavar="FILE.html", help="draw graphs, prices and rules in one file for a browser"
    )
    parser.add_argument("--certificate", type=Path, metavar="FILE.json", help="write the order that proves it")
    tolerances(parser)


def _run(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = command(commands, "run", "run a compiled model", ("run", "run"))
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile` wrote")
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE.npy", help="an input, or .npz with all; repeatable"
    )
    parser.add_argument("--random", type=not_negative(int), metavar="SEED", help="random numbers for the other inputs")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the outputs (.npy where there is one)")
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: as compiled)")


def _bench(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = command(commands, "bench", "measure how long a compiled model takes", ("bench.bench", "bench"))
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile` wrote")
    parser.add_argument(
        "--against",
        choices=("ort", *DSA_VARIANTS),
        help="ort: take turns with ONNX Runtime on the original model; others: schedule a program for an accelerator "
        "anew in that variant, for the same samples in each run of a cluster",
    )
    parser.add_argument(
        "--trace", type=Path, metavar="FILE.json", help="of a program for an accelerator: write its simulated run"
    )
    parser.add_argument("--model", type=Path, help="where the original is now (default: where it was compiled from)")
    parser.add_argument(
        "--kernels", action="store_true", help="time each kernel where it stands, beside the roofline of the device"
    )
    parser.add_argument("--repeat", type=positive(int), help="runs of each (default 50, with --kernels 30)")
    given_inputs(parser, "measure on these inputs (default: random ones)")
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: as compiled)")
    parser.add_argument(
        "--emulate", action="store_true", help="count what a bundle for Arm executes, on an emulated board"
    )
    parser.add_argument(
        "--arm64-root", type=Path, metavar="FOLDER", help="ONNX Runtime for --emulate --against ort; see docs/arm.md"
    )


def _verify(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = command(commands, "verify", "check that two models compute the same", ("compare", "verify"))
    model(parser)
    parser.add_argument("candidate", type=Path, help="the model to compare with it")
    shapes(parser)
    tolerances(parser)


def _inspect(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = command(commands, "inspect", "show what a model consists of and what it costs", ("compare", "inspect"))
    model(parser)
    pricing(parser)
    shapes(parser)
    partition = parser.add_mutually_exclusive_group()
    partition.add_argument(
        "--partition",
        choices=get_args(PartitionMethod),
        help="cut the model into groups to fuse (default: show those it records)",
    )
    partition.add_argument(
        "--certificate", type=Path, metavar="FILE.json", help="show the groups that this certificate proves"
    )
    parser.add_argument("--certify", action="store_true", help="have z3 check the groups: acyclic, each convex")
    parser.add_argument(
        "--time-limit", type=positive(float), default=10.0, help="seconds for --partition joint (default 10)"
    )


def _diff(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = command(commands, "diff", "show how two models differ, by operator and cost", ("compare", "diff"))
    model(parser)
    parser.add_argument("candidate", type=Path, help="the model to compare with it")
    pricing(parser)


def _bisect(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = command(commands, "bisect", "find the rule that makes verification fail", ("rules.bisect", "bisect"))
    model(parser)
    optimization(parser)
    tolerances(parser)


def _rules(commands: Commands) -> None:  # type: ignore[type-arg]
    rules = commands.add_parser("rules", help="list, check and observe rewrite rules", description="Rewrite rules.")
    actions = rules.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = command(actions, "list", "list the rules", ("rules.rules", "list_rules"))
    listing.add_argument("--tag", help="only rules with this property, topic or name")
    listing.add_argument("--property", choices=PROPERTIES, help="only rules with this property")
    listing.add_argument("--topic", help="only the rules of one file, by its name")
    listing.add_argument("--sound", choices=SOUNDNESS, help="only rules that are true in this sense")
    rule_files(listing)
    show = command(actions, "show", "show one rule with its record", ("rules.rules", "show_rule"))
    show.add_argument("name", help="the rule's name")
    rule_files(show)
    check = command(actions, "check", "lint, prove and test rules", ("rules.check_rules", "check_rules"))
    check.add_argument("paths", nargs="*", type=Path, help="files or folders; without any, the shipped catalogue")
    check.add_argument("--fresh", action="store_true", help="use no verdicts of earlier runs")
    check.add_argument(
        "--samples", type=positive(int), default=24, metavar="N",
        help="test N samples of each side that is rewritten (default 24)",
    )  # fmt: skip
    find = command(actions, "discover", "find rules over some operators", ("rules.discover", "discover_rules"))
    find.add_argument("--ops", required=True, metavar="A,B,C", help="element-wise operators and reductions")
    find.add_argument("--size", type=positive(int), default=3, help="operators in the largest term (default 3)")
    find.add_argument(
        "--no-catalogue",
        dest="catalogue",
        action="store_false",
        help="find what the shipped rules derive, too; a rule that is one of them is written as a comment",
    )
    find.add_argument("--output", type=Path, metavar="FILE", help="the rule file to write (default: standard output)")
    _observation(actions)


def _observation(actions: Commands) -> None:  # type: ignore[type-arg]
    explain = command(actions, "explain", "show by which rules a value got its form", ("rules.observe", "explain"))
    model(explain)
    explain.add_argument("--output", metavar="VALUE", help="a value of the original (without: list the rewritten ones)")
    why = command(actions, "why-not", "show why a rule does not match or is not used", ("rules.observe", "why_not"))
    why.add_argument("name", help="the rule's name")
    model(why)
    why.add_argument("--node", required=True, metavar="N", help="the name of a node, or of one of its outputs")
    stats = command(actions, "stats", "count what each rule does to some models", ("rules.observe", "stats"))
    stats.add_argument("models", nargs="+", type=Path, help="ONNX files")
    stats.add_argument("--unused", action="store_true", help="list the rules that never match")
    for parser in (explain, why, stats):
        optimization(parser, checked=False)
        parser.set_defaults(atol=None, rtol=None, verify_limit=300.0, seed=0, inputs=[])  # nothing is verified


def _profile(commands: Commands) -> None:  # type: ignore[type-arg]
    about = "Latencies of sub-graphs that were measured on devices, and that later runs use again."
    profile = commands.add_parser("profile", help="list, share and remove measured latencies", description=about)
    actions = profile.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = command(actions, "list", "list the measurements", ("profile", "list_measurements"))
    export = command(actions, "export", "write the measurements to a file", ("profile", "export_measurements"))
    export.add_argument("file", type=Path, metavar="FILE.json", help="the file to write")
    load = command(actions, "import", "add the measurements of a file", ("profile", "import_measurements"))
    load.add_argument("file", type=Path, metavar="FILE.json", help="what `export` wrote")
    clear = command(actions, "clear", "remove measurements, without asking", ("profile", "clear_measurements"))
    for parser in (listing, export, clear):
        parser.add_argument("--device", metavar="D", help="only measurements on this device")
    for parser in (listing, export, load, clear):
        parser.add_argument(
            "--database", type=Path, metavar="PATH", help="the database (default: in the user's cache folder)"
        )


def _device(commands: Commands) -> None:  # type: ignore[type-arg]
    about = "Descriptions of processors, which prices and schedules are made from."
    device = commands.add_parser("device", help="list and show devices, and measure this machine", description=about)
    actions = device.add_subparsers(title="actions", required=True, metavar="ACTION")
    command(actions, "list", "list the devices", ("device", "list_devices"))
    show = command(actions, "show", "print a device as TOML, each figure with its origin", ("device", "show_device"))
    show.add_argument("device", nargs="?", default="host", help="a name, or the path of a device file (default: host)")
    command(actions, "detect", "print a file of this machine, to start yours from", ("device", "detect_device"))
    measure = command(actions, "measure", "measure this machine and keep that", ("device", "measure_device"))
    measure.add_argument("--forget", action="store_true", help="go back to what is known without measuring")
