"""The options of every command. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..driver.choices import (
    DSA_ORDERS,
    DSA_VARIANTS,
    FLOATS,
    PARTITIONS,
    RULE_PROPERTIES,
    RULE_SOUNDNESS,
    RUNNERS,
)
from ..support.text import printable
from ..support.version import __version__
from .arguments import (
    EXIT_CODES,
    Commands,
    add_candidate,
    add_command,
    add_dimensions,
    add_inputs,
    add_model,
    add_optimization,
    add_pricing,
    add_rule_trust,
    add_rules,
    add_shapes,
    add_time_limit,
    add_verification,
    not_negative,
    positive,
    whole_numbers,
)

MEASURE_SECONDS = 60.0
"""The budget of --measure without a number: enough for some ten candidates of a model that takes 20 ms."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; the parsed arguments carry `command`, the function to run."""
    parser = _Parser(
        prog="eqfuse",
        description="Rewrites ONNX models by equality saturation under algebraic rules, and compiles them.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"eqfuse {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (
        _optimize, _compile, _tune, _run, _bench, _verify, _inspect, _diff, _bisect, _rules, _profile, _device,
    ):  # fmt: skip
        add(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that takes the optional `out` behind options too."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        # argparse decides on an optional positional when it meets the one before it, and gives --measure what follows
        arguments, rest = super().parse_known_args(_with_seconds(args), namespace)
        if rest and getattr(arguments, "out", "") is None and not rest[0].startswith("-"):
            arguments.out = Path(rest.pop(0))
        return arguments, rest

    def error(self, message: str) -> NoReturn:
        self.exit(2, printable(f"eqfuse: error: {message}; see {self.prog} --help\n"))


def _with_seconds(args: Sequence[str] | None) -> list[str]:
    """The arguments, with the default for a --measure that no number follows: a model may follow it."""
    given = sys.argv[1:] if args is None else list(args)
    bare = {n for n, each in enumerate(given) if each == "--measure" and not _is_number("".join(given[n + 1 : n + 2]))}
    return [f"--measure={MEASURE_SECONDS:g}" if n in bare else each for n, each in enumerate(given)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _optimize(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "optimize", "rewrite a model into a cheaper equivalent one", "optimize.optimize")
    add_model(parser)
    parser.add_argument("out", nargs="?", type=Path, help="the file to write (or -o)")
    parser.add_argument("-o", "--output", type=Path, help="the file to write; without one, only report")
    add_optimization(parser)
    add_rule_trust(parser)
    add_pricing(parser)
    parser.add_argument(
        "--runtime", metavar="NAME|FILE.toml",
        help="the runtime the result is for: onnxruntime, onnxruntime-1.22, none, or a file that lists what it runs "
        "as a single kernel (default onnxruntime)",
    )  # fmt: skip
    add_time_limit(
        parser,
        "end after this many seconds, reading and verification included, with the best graph found by then; "
        "--verify-limit gives verification its own (default: 30 s for rewriting and choosing the graph)",
    )
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not compare result and original")
    parser.add_argument(
        "--partition", choices=PARTITIONS,
        help="cut the result into fused sub-graphs; joint: choose graph and sub-graphs together (default none)",
    )  # fmt: skip
    parser.add_argument("--as-functions", action="store_true", help="write each sub-graph as a local function")
    parser.add_argument(
        "--certify", action="store_true",
        help="fail unless z3 proves within a minute that the sub-graphs are acyclic (by default it gets a second)",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, metavar="FILE.html", help="draw graphs, prices and rules in one file for a browser"
    )
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE.json", help="write a JSON certificate of acyclicity"
    )
    group = parser.add_argument_group("choosing by measurement")
    group.add_argument(
        "--measure", nargs="?", type=positive(float), const=MEASURE_SECONDS, metavar="SECONDS",
        help="time candidates in ONNX Runtime, and write the fastest, never one slower than the original "
        f"(default {MEASURE_SECONDS:.0f} s)",
    )  # fmt: skip
    group.add_argument("--threads", type=positive(int), metavar="N", help="time on N threads (default 1)")
    add_verification(parser, "verify and measure")


def _compile(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "compile", "compile a model for a processor or an accelerator", "compile.compile_")
    _add_compilation(parser)
    add_time_limit(
        parser,
        "seconds for rewriting and choosing the graph (default 30), and at most as many again for verification, to "
        "which --verify-limit gives its own; kernels are built however long that takes",
    )
    group = parser.add_argument_group("for an accelerator (--target dsa-...)")
    group.add_argument(
        "--floats", choices=FLOATS,
        help="the type that floats are stored in (default: the model's); in a narrower type than the model's, outputs "
        "may differ by four times the effect of rounding its weights and inputs",
    )  # fmt: skip
    group.add_argument(
        "--variant", choices=DSA_VARIANTS, help="full (default), graphturbo, or one of the steps towards it"
    )
    group.add_argument("--order", choices=DSA_ORDERS, help="how to order instances (default: as the variant does)")
    group.add_argument(
        "--per-cluster", type=positive(int), help="samples in one run of a cluster (default: the fastest number)"
    )
    group = parser.add_argument_group("for autotuned schedules (see `eqfuse tune`)")
    group.add_argument(
        "--trials", type=positive(int), metavar="N",
        help="measure up to N candidates, including those of earlier runs (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--tuning-limit", type=positive(float), metavar="S", help="start no new candidates after this many seconds"
    )
    _add_search(group)


def _tune(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "tune", "compile a model with autotuned schedules", "compile.tune")
    _add_compilation(parser)
    parser.add_argument(
        "--trials", type=positive(int), default=200, metavar="N",
        help="measure up to N candidates, including those of earlier runs (default 200); the same command continues a "
        "search that was stopped",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit", dest="tuning_limit", type=positive(float), metavar="S",
        help="start no new candidates after this many seconds",
    )  # fmt: skip
    _add_search(parser)


def _add_compilation(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="the bundle to write")
    parser.add_argument(
        "--target", default="host", help="this machine, the name of a device file, or dsa-NAME or dsa-FILE.toml for an "
        "accelerator that is simulated (default host); an unknown name lists them",
    )  # fmt: skip
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: the cores of the target)")
    parser.add_argument(
        "--batch", type=whole_numbers, metavar="1,4,16",
        help="sizes of the batch that get kernels of their own, beside kernels for all sizes; choices are made for the "
        "first; a model for one sample then takes several; for an accelerator one number: all samples (default: the "
        "model's)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("bundle", "c"),
        help="a folder that Python loads, or a C project (default: a bundle where this machine can load it)",
    )  # fmt: skip
    parser.add_argument("--prefix", metavar="P", help="the beginning of all names in a C project (default eqfuse)")
    parser.add_argument(
        "--partition", choices=PARTITIONS, default="joint",
        help="cut the model into fused kernels; joint: choose graph and kernels together (default joint); a model that "
        "records its partition keeps it, except with none",
    )  # fmt: skip
    parser.add_argument(
        "--cost", choices=("roofline", "profile"), default="roofline",
        help="what to minimise; profile: measured times of kernels, and where there are none the roofline, scaled to "
        "them (default roofline)",
    )  # fmt: skip
    parser.add_argument(
        "--no-intensive", dest="intensive", action="store_false",
        help="put at most one convolution or matrix product into a kernel",
    )  # fmt: skip
    parser.add_argument(
        "--no-measure", dest="measure", action="store_false",
        help="do not time the kernels: slow ones stay, and equal models give equal bundles",
    )  # fmt: skip
    add_optimization(parser)
    add_rule_trust(parser)
    parser.set_defaults(device="host")
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not compare with the original")
    add_verification(parser)


def _add_search(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--no-reformer", action="store_true", default=None, help="tune joined kernels from the start, as a whole"
    )
    parser.add_argument(
        "--runner", choices=RUNNERS,
        help="where candidates run: here, on an emulated Arm board, or on devices of --tracker (default: by target)",
    )  # fmt: skip
    parser.add_argument("--tracker", metavar="HOST:PORT", help="TVM's RPC tracker, which knows the devices")
    parser.add_argument("--device-key", metavar="K", help="the kind of device to ask the tracker for")
    parser.add_argument("--cluster", metavar="HOST:PORT", help="a Dask scheduler, whose workers compile candidates")


def _run(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "run", "run a compiled model", "run.run")
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile` wrote")
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE.npy", help="an input, or .npz with all; repeatable"
    )
    parser.add_argument("--random", type=not_negative(int), metavar="SEED", help="random numbers for the other inputs")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the outputs (.npy where there is one)")
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: as compiled)")


def _bench(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "bench", "measure how long a compiled model takes", "bench.bench")
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile` wrote")
    parser.add_argument(
        "--against", choices=("ort", *DSA_VARIANTS),
        help="ort: take turns with ONNX Runtime on the original model; other names: schedule a program for an "
        "accelerator anew in that variant, with the same samples in each run of a cluster",
    )  # fmt: skip
    parser.add_argument(
        "--trace", type=Path, metavar="FILE.json", help="write the simulated run of a program for an accelerator"
    )
    parser.add_argument("--model", type=Path, help="where the original is now (default: where it was compiled from)")
    parser.add_argument(
        "--kernels", action="store_true",
        help="time each kernel inside the running model, beside the roofline of the device",
    )  # fmt: skip
    parser.add_argument(
        "--throughput", type=positive(int), metavar="CLIENTS",
        help="let this number of threads call the model at once, and count calls a second",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=positive(int), help="samples in a run of a bundle with a free batch (default: its typical size)"
    )
    parser.add_argument(
        "--repeat", type=positive(int),
        help="runs of each (default 50, with --kernels 30), or slices of a quarter of a second (--throughput: 12)",
    )  # fmt: skip
    add_inputs(parser, "measure on these inputs (default: random ones)")
    parser.add_argument("--threads", type=positive(int), help="threads to run on (default: as compiled)")
    parser.add_argument(
        "--emulate", action="store_true", help="count the instructions of a bundle for Arm on an emulated board"
    )
    parser.add_argument(
        "--arm64-root", type=Path, metavar="FOLDER", help="ONNX Runtime for --emulate --against ort; see docs/arm.md"
    )


def _verify(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "verify", "check that two models compute the same", "inspect.verify")
    add_candidate(parser)
    add_shapes(parser)
    add_verification(parser)


def _inspect(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "inspect", "show the parts of a model and their cost", "inspect.inspect")
    add_model(parser)
    add_pricing(parser)
    add_shapes(parser)
    add_dimensions(parser)
    partition = parser.add_mutually_exclusive_group()
    partition.add_argument(
        "--partition", choices=PARTITIONS,
        help="cut the model into groups to fuse (default: show those it records)",
    )  # fmt: skip
    partition.add_argument(
        "--certificate", type=Path, metavar="FILE.json", help="show the groups that this certificate proves"
    )
    parser.add_argument("--certify", action="store_true", help="have z3 check the groups: acyclic, each convex")
    parser.add_argument("--time-limit", type=positive(float), help="seconds for --partition joint (default 10)")


def _diff(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "diff", "show how two models differ, by operator and cost", "inspect.diff")
    add_candidate(parser)
    add_pricing(parser)


def _bisect(commands: Commands) -> None:  # type: ignore[type-arg]
    parser = add_command(commands, "bisect", "find the rule that makes verification fail", "rules.bisect.bisect")
    add_model(parser)
    add_optimization(parser)
    add_rule_trust(parser)
    add_pricing(parser)
    add_time_limit(parser, "seconds that each attempt may take, verification included (default: 30 s of rewriting)")
    add_verification(parser)


def _rules(commands: Commands) -> None:  # type: ignore[type-arg]
    rules = commands.add_parser("rules", help="list, check and observe rewrite rules", description="Rewrite rules.")
    actions = rules.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = add_command(actions, "list", "list the rules", "rules.catalogue.list_rules")
    listing.add_argument("--tag", help="only rules with this property, topic or name")
    listing.add_argument("--property", choices=RULE_PROPERTIES, help="only rules with this property")
    listing.add_argument("--topic", help="only the rules of one file, by its name")
    listing.add_argument("--sound", choices=RULE_SOUNDNESS, help="only rules that are true in this sense")
    add_rules(listing)
    show = add_command(actions, "show", "show one rule with its record", "rules.catalogue.show_rule")
    show.add_argument("name", help="the rule's name")
    add_rules(show)
    check = add_command(actions, "check", "lint, prove and test rules", "rules.check.check_rules")
    check.add_argument("paths", nargs="*", type=Path, help="files or folders; without any, the shipped catalogue")
    check.add_argument("--fresh", action="store_true", help="use no verdicts of earlier runs")
    check.add_argument(
        "--samples", type=positive(int), default=24, metavar="N",
        help="test N samples of each side that is rewritten (default 24)",
    )  # fmt: skip
    find = add_command(actions, "discover", "find rules over some operators", "rules.discover.discover_rules")
    find.add_argument("--ops", required=True, metavar="A,B,C", help="element-wise operators and reductions")
    find.add_argument("--size", type=positive(int), default=3, help="operators in the largest term (default 3)")
    find.add_argument(
        "--no-catalogue", dest="catalogue", action="store_false",
        help="also find rules that the shipped ones derive; a shipped rule is written as a comment",
    )  # fmt: skip
    find.add_argument("--output", type=Path, metavar="FILE", help="the rule file to write (default: standard output)")

    explain = add_command(actions, "explain", "show by which rules a value got its form", "rules.observe.explain")
    add_model(explain)
    explain.add_argument("--output", metavar="VALUE", help="a value of the original (without: list the rewritten ones)")
    why = add_command(actions, "why-not", "show why a rule does not match or is not used", "rules.observe.why_not")
    why.add_argument("name", help="the rule's name")
    add_model(why)
    why.add_argument("--node", required=True, metavar="N", help="the name of a node, or of one of its outputs")
    stats = add_command(actions, "stats", "count how often each rule matches in some models", "rules.observe.stats")
    stats.add_argument("models", nargs="+", type=Path, help="ONNX files")
    stats.add_argument("--unused", action="store_true", help="list the rules that never match")
    for parser in (explain, why, stats):
        add_optimization(parser)
        add_pricing(parser)
        add_time_limit(parser, "seconds for rewriting and choosing the graph (default 30)")


def _profile(commands: Commands) -> None:  # type: ignore[type-arg]
    about = "Latencies of sub-graphs that were measured on devices; later runs use them again."
    profile = commands.add_parser("profile", help="list, share and remove measured latencies", description=about)
    actions = profile.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = add_command(actions, "list", "list the measurements", "profile.list_measurements")
    export = add_command(actions, "export", "write the measurements to a file", "profile.export_measurements")
    export.add_argument("file", type=Path, metavar="FILE.json", help="the file to write")
    load = add_command(actions, "import", "add the measurements of a file", "profile.import_measurements")
    load.add_argument("file", type=Path, metavar="FILE.json", help="a file that `export` wrote")
    clear = add_command(actions, "clear", "remove measurements, without asking", "profile.clear_measurements")
    for parser in (listing, export, clear):
        parser.add_argument("--device", metavar="D", help="only measurements on this device")
    for parser in (listing, export, load, clear):
        parser.add_argument(
            "--database", type=Path, metavar="PATH", help="the database (default: in the user's cache folder)"
        )


def _device(commands: Commands) -> None:  # type: ignore[type-arg]
    about = "Descriptions of processors, from which prices and schedules are computed."
    device = commands.add_parser("device", help="list and show devices, and measure this machine", description=about)
    actions = device.add_subparsers(title="actions", required=True, metavar="ACTION")
    add_command(actions, "list", "list the devices", "device.list_devices")
    show = add_command(actions, "show", "print a device as TOML, each figure with its origin", "device.show_device")
    show.add_argument("device", nargs="?", default="host", help="a name, or the path of a device file (default: host)")
    add_command(actions, "detect", "print a file of this machine, to start yours from", "device.detect_device")
    measure = add_command(actions, "measure", "measure this machine and keep the figures", "device.measure_device")
    measure.add_argument("--forget", action="store_true", help="go back to the figures known without measuring")
