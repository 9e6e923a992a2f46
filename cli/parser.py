"""The options of every command. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from .. import __version__
from ..rules.vocabulary import PROPERTIES, SOUNDNESS

Command = tuple[str, str]
"""Module below `eqfuse.cli` and function in it."""

EXIT_CODES = (
    "exit codes: 0 ok, 1 error, 2 usage, 3 verification failed, 4 rule file error, "
    "5 a budget was hit (the output is valid)"
)


FLOATS = ("float16", "float32", "float64")
DSA_VARIANTS = ("tvm", "astitch", "gb", "lb", "instances", "graphturbo", "full")
DSA_ORDERS = ("better", "bfs", "dfs", "footprint", "best")
"""Names of `lowering/dsa`, which is not imported here."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; the parsed arguments carry `command`, what to run."""
    parser = _Parser(
        prog="eqfuse",
        description="Rewrites ONNX models by equality saturation under algebraic rules kept as files.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"eqfuse {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (_optimize, _compile, _run, _bench, _verify, _inspect, _diff, _bisect, _rules, _profile):
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
        self.exit(2, f"eqfuse: error: {message}; see {self.prog} --help\n")


Commands = argparse._SubParsersAction  # the type of add_subparsers() has no public name


def _command(commands: Commands, name: str, help_: str, run: Command) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_, description=help_[0].upper() + help_[1:] + ".", epilog=EXIT_CODES
    )
    parser.set_defaults(command=run)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more; -vv shows tracebacks")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _optimize(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = _command(commands, "optimize", "rewrite a model into a cheaper equivalent one", ("optimize", "optimize"))
    _model(parser)
    parser.add_argument("out", nargs="?", type=Path, help="the file to write (or -o)")
    parser.add_argument("-o", "--output", type=Path, help="the file to write; without one, only report")
    _optimization(parser)
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not compare result and original")
    parser.add_argument(
        "--partition",
        choices=("joint", "ago", "dnnfusion", "fuseops", "none"),
        default="none",
        help="cut the result into fused sub-graphs; joint: choose graph and sub-graphs together (default none)",
    )
    parser.add_argument("--as-functions", action="store_true", help="write each sub-graph as a local function")
    parser.add_argument("--certify", action="store_true", help="have z3 check that the sub-graphs are acyclic")
    parser.add_argument(
        "--report", type=Path, metavar="FILE.html", help="draw graphs, prices and rules in one file for a browser"
    )
    parser.add_argument("--certificate", type=Path, metavar="FILE.json", help="write the order that proves it")
    _tolerances(parser)


def _compile(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = _command(commands, "compile", "compile a model for a processor or an accelerator", ("compile", "compile_"))
    _model(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="the bundle to write")
    parser.add_argument(
        "--target", default="host", help="this machine, the name of a device file, or dsa-NAME or dsa-FILE.toml for an "
        "accelerator that is simulated (default host); an unknown name lists them",
    )  # fmt: skip
    _accelerator(parser)
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: the cores of the target)")
    parser.add_argument(
        "--partition",
        choices=("joint", "ago", "dnnfusion", "fuseops", "none"),
        default="joint",
        help="cut the model into fused kernels; joint: choose graph and kernels together (default joint)",
    )
    parser.add_argument(
        "--no-intensive", dest="intensive", action="store_false", help="one convolution or product in a kernel at most"
    )
    _optimization(parser, priced=False)
    parser.set_defaults(cost="roofline", device="host", as_functions=False, certify=False, certificate=None)
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not compare with the original")
    _tolerances(parser)


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


def _run(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = _command(commands, "run", "run a compiled model", ("run", "run"))
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile` wrote")
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE.npy", help="an input, or .npz with all; repeatable"
    )
    parser.add_argument("--random", type=not_negative(int), metavar="SEED", help="random numbers for the other inputs")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the outputs (.npy where there is one)")
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: as compiled)")


def _bench(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = _command(commands, "bench", "measure how long a compiled model takes", ("bench", "bench"))
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
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: as compiled)")
    parser.add_argument(
        "--emulate", action="store_true", help="count what a bundle for Arm executes, on an emulated board"
    )
    parser.add_argument(
        "--arm64-root", type=Path, metavar="FOLDER", help="ONNX Runtime for --emulate --against ort; see docs/arm.md"
    )


def _verify(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = _command(commands, "verify", "check that two models compute the same", ("compare", "verify"))
    _model(parser)
    parser.add_argument("candidate", type=Path, help="the model to compare with it")
    _shapes(parser)
    _tolerances(parser)


def _inspect(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = _command(commands, "inspect", "show what a model consists of and what it costs", ("compare", "inspect"))
    _model(parser)
    _pricing(parser)
    _shapes(parser)
    partition = parser.add_mutually_exclusive_group()
    partition.add_argument(
        "--partition",
        choices=("joint", "ago", "dnnfusion", "fuseops", "none"),
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
    parser = _command(commands, "diff", "show how two models differ, by operator and cost", ("compare", "diff"))
    _model(parser)
    parser.add_argument("candidate", type=Path, help="the model to compare with it")
    _pricing(parser)


def _bisect(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = _command(commands, "bisect", "find the rule that makes verification fail", ("bisect", "bisect"))
    _model(parser)
    _optimization(parser)
    _tolerances(parser)


def _rules(commands: Commands) -> None:  # type: ignore[type-arg]
    rules = commands.add_parser("rules", help="list, check and observe rewrite rules", description="Rewrite rules.")
    actions = rules.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = _command(actions, "list", "list the rules", ("rules", "list_rules"))
    listing.add_argument("--tag", help="only rules with this property, topic or name")
    listing.add_argument("--property", choices=PROPERTIES, help="only rules with this property")
    listing.add_argument("--topic", help="only the rules of one file, by its name")
    listing.add_argument("--sound", choices=SOUNDNESS, help="only rules that are true in this sense")
    _rule_files(listing)
    show = _command(actions, "show", "show one rule with its record", ("rules", "show_rule"))
    show.add_argument("name", help="the rule's name")
    _rule_files(show)
    check = _command(actions, "check", "lint, prove and test rules", ("check_rules", "check_rules"))
    check.add_argument("paths", nargs="*", type=Path, help="files or folders; without any, the shipped catalogue")
    check.add_argument("--fresh", action="store_true", help="use no verdicts of earlier runs")
    find = _command(actions, "discover", "find rules over some operators", ("discover", "discover_rules"))
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
    explain = _command(actions, "explain", "show by which rules a value got its form", ("observe", "explain"))
    _model(explain)
    explain.add_argument("--output", metavar="VALUE", help="a value of the original (without: list the rewritten ones)")
    why = _command(actions, "why-not", "show why a rule does not match or is not used", ("observe", "why_not"))
    why.add_argument("name", help="the rule's name")
    _model(why)
    why.add_argument("--node", required=True, metavar="N", help="the name of a node, or of one of its outputs")
    stats = _command(actions, "stats", "count what each rule does to some models", ("observe", "stats"))
    stats.add_argument("models", nargs="+", type=Path, help="ONNX files")
    stats.add_argument("--unused", action="store_true", help="list the rules that never match")
    for parser in (explain, why, stats):
        _optimization(parser)
        parser.set_defaults(atol=None, rtol=None, seed=0)  # nothing is verified


def _profile(commands: Commands) -> None:  # type: ignore[type-arg]
    about = "Latencies of sub-graphs that were measured on devices, and that later runs use again."
    profile = commands.add_parser("profile", help="list, share and remove measured latencies", description=about)
    actions = profile.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = _command(actions, "list", "list the measurements", ("profile", "list_measurements"))
    export = _command(actions, "export", "write the measurements to a file", ("profile", "export_measurements"))
    export.add_argument("file", type=Path, metavar="FILE.json", help="the file to write")
    load = _command(actions, "import", "add the measurements of a file", ("profile", "import_measurements"))
    load.add_argument("file", type=Path, metavar="FILE.json", help="what `export` wrote")
    clear = _command(actions, "clear", "remove measurements, without asking", ("profile", "clear_measurements"))
    for parser in (listing, export, clear):
        parser.add_argument("--device", metavar="D", help="only measurements on this device")
    for parser in (listing, export, load, clear):
        parser.add_argument(
            "--database", type=Path, metavar="PATH", help="the database (default: in the user's cache folder)"
        )


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="an ONNX file")


def _optimization(parser: argparse.ArgumentParser, *, priced: bool = True) -> None:
    _rule_files(parser)
    parser.add_argument("--only", action="append", default=[], metavar="TAG", help="only rules with this tag")
    parser.add_argument("--skip", action="append", default=[], metavar="TAG", help="no rules with this tag")
    parser.add_argument(
        "--precision",
        choices=("exact", "real", "fast"),
        default="real",
        help="exact: bit-identical rules; real: equal over the reals (default); fast: may change overflow, NaN, inf",
    )
    if priced:
        _pricing(parser)
    _shapes(parser)
    parser.add_argument("--opset", type=positive(int), help="use operators up to this opset (default: the model's)")
    parser.add_argument("--time-limit", type=positive(float), default=30.0, help="seconds of rewriting (default 30)")
    parser.add_argument("--node-limit", type=positive(int), default=50_000, help="e-nodes (default 50000)")
    parser.add_argument("--iterations", type=positive(int), default=200, help="rounds of rewriting (default 200)")
    parser.add_argument("--extraction", choices=("exact", "greedy"), default="exact", help="how to choose the graph")


def _pricing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cost", choices=("roofline", "flops"), default="roofline", help="what to minimise")
    parser.add_argument("--device", default="host", help="device file for the roofline, by name or path (default host)")


def _rule_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules", action="append", default=[], type=Path, metavar="FILE|DIR", help="further rules; repeatable"
    )


def _shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input-shapes",
        action="append",
        default=[],
        type=input_shape,
        metavar="NAME:1,3,224,224",
        help="fix the shape of an input (also NAME:[1,3,224,224] and NAME:1x3x224x224); repeatable",
    )


def _tolerances(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--atol", type=not_negative(float), help="absolute tolerance (default: by element type)")
    parser.add_argument("--rtol", type=not_negative(float), help="relative tolerance (default: by element type)")
    parser.add_argument("--seed", type=not_negative(int), default=0, help="seed of the random inputs (default 0)")


Number = TypeVar("Number", int, float)


def positive(kind: Callable[[str], Number]) -> Callable[[str], Number]:
    """A converter that accepts only finite numbers above zero."""
    return _limited(kind, lambda number: number > 0, "a number above 0")


def not_negative(kind: Callable[[str], Number]) -> Callable[[str], Number]:
    """A converter that accepts only finite numbers from zero on."""
    return _limited(kind, lambda number: number >= 0, "a number from 0 on")


def _limited(kind: Callable[[str], Number], allowed: Callable[[Number], bool], wanted: str) -> Callable[[str], Number]:
    def convert(text: str) -> Number:
        number = kind(text)
        if not (math.isfinite(number) and allowed(number)):
            raise argparse.ArgumentTypeError(f"{text} is not {wanted}")
        return number

    convert.__name__ = kind.__name__  # argparse names it where the text is no number at all
    return convert


def input_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """``x:1,3,224,224`` and its variants; a dimension may be a name, and `[]` is the shape of a scalar."""
    name, colon, shape = text.rpartition(":")
    if not colon or not name or not shape:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:SHAPE, such as x:1,3,224,224")
    return name, tuple(int(d) if d.isdecimal() else d for d in _dimensions(shape))


def _dimensions(shape: str) -> list[str]:
    body = re.sub(r"^\[(.*)\]$", r"\1", shape.strip())
    crossed = body.split("x")  # 1x3x224x224 or Nx3x224x224, but not a dimension that is called `max`
    if all(re.fullmatch(r"\d+|[A-Za-z]", d) for d in crossed) and any(d.isdecimal() for d in crossed):
        return crossed
    dimensions = [d.strip() for d in body.split(",")] if body.strip() else []
    if not all(re.fullmatch(r"\d+|[A-Za-z_]\w*", d, re.ASCII) for d in dimensions):
        raise argparse.ArgumentTypeError(f"{shape!r} is not a shape: a dimension is a number or a name")
    return dimensions
