"""The arguments of each command, by functions named like the one that runs it. Light to import, so that ``--help``
answers at once."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ..driver.choices import DEFAULT_TRIALS, RULE_PROPERTIES, RULE_SOUNDNESS
from ..driver.options import (
    AttemptOptions,
    BenchOptions,
    CostOptions,
    InspectOptions,
    MeasureOptions,
    Options,
    RewritingOptions,
    RuleOptions,
    VerifyOptions,
)
from ..support.options import NotNegativeInteger, Positive, PositiveInteger
from .arguments import add_options, reader, several


def _streams(parser: ArgumentParser, which: str, **suffixes: str) -> None:
    """Say which arguments that a command `reads` or `writes` may be `-`, and how names of such files end."""
    parser.set_defaults(**{which: {**parser.get_default(which), **suffixes}})


def _add_model(parser: ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="an ONNX file")
    _streams(parser, "reads", model=".onnx")


def _add_candidate(parser: ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("candidate", type=Path, help="the model to compare with it")
    _streams(parser, "reads", candidate=".onnx")


def _add_bundle(parser: ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="the folder that `eqfuse compile` wrote")


# --- models


def optimize(parser: ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("out", nargs="?", type=Path, help="the file to write (or -o)")
    parser.add_argument("-o", "--output", type=Path, help="the file to write; without one, only report")
    parser.add_argument(
        "--report", type=Path, metavar="FILE.html", help="draw graphs, costs and rules in one file for a browser"
    )
    _streams(parser, "writes", out=".onnx", output=".onnx", report=".html")
    add_options(parser, Options, without=("intensive",))
    add_options(parser.add_argument_group("choosing by measurement"), MeasureOptions)


_FIXED = (
    "device", "runtime", "as_functions", "certify", "certificate", "save_intermediate", "accelerator", "tuning",
)  # fmt: skip
"""Options of `compile` without a flag, since the target names the device and accelerators and tuning have their own
flags."""


def compile_(parser: ArgumentParser) -> None:
    from ..driver.compiler.options import AcceleratorOptions, CompileOptions, Settings  # other commands need none

    _add_bundle_to_write(parser)
    add_options(parser, CompileOptions, without=_FIXED)
    group = parser.add_argument_group("for an accelerator (--target dsa-...)")
    add_options(group, AcceleratorOptions, without=("batch",))
    group = parser.add_argument_group("for autotuned schedules (see `eqfuse tune`)")
    add_options(group, Settings, without=("intensive", "seed"))


def tune(parser: ArgumentParser) -> None:
    from ..driver.compiler.options import CompileOptions, Settings  # other commands need none

    _add_bundle_to_write(parser)
    add_options(parser, CompileOptions, without=(*_FIXED, "time_limit"))
    group = parser.add_argument_group(
        f"search ({DEFAULT_TRIALS} candidates unless --trials says otherwise; the same command continues a search that "
        "was stopped)"
    )
    add_options(group, Settings, without=("intensive", "seed"), flags={"time_limit": "--time-limit"})
    parser.set_defaults(trials=DEFAULT_TRIALS)


def _add_bundle_to_write(parser: ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="the bundle to write")


def run(parser: ArgumentParser) -> None:
    _add_bundle(parser)
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE.npy", help="an input, or .npz with all; repeatable"
    )
    parser.add_argument(
        "--random", type=reader(NotNegativeInteger), metavar="SEED", help="random numbers for the other inputs"
    )
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the outputs (.npy for a single one)")
    _streams(parser, "writes", output=".npz")
    add_options(parser, BenchOptions, only=("threads",))


def bench(parser: ArgumentParser) -> None:
    _add_bundle(parser)
    add_options(parser, BenchOptions)


def report(parser: ArgumentParser) -> None:
    _add_bundle(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.html", help="the file to write (default: beside the bundle)"
    )
    _streams(parser, "writes", output=".html")
    add_options(parser, BenchOptions, only=("repeat", "threads", "batch", "inputs"))


def verify(parser: ArgumentParser) -> None:
    _add_candidate(parser)
    add_options(parser, VerifyOptions)


def inspect(parser: ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="model", type=Path, help="an ONNX file; several give one table")
    _streams(parser, "reads", models=".onnx")
    add_options(parser, InspectOptions, without=("partition", "certificate"))
    add_options(parser.add_mutually_exclusive_group(), InspectOptions, only=("partition", "certificate"))


def diff(parser: ArgumentParser) -> None:
    _add_candidate(parser)
    add_options(parser, CostOptions)


# --- rules


def extract(parser: ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--from", dest="start", type=several(str), default=(), metavar="VALUE,...",
        help="values that become inputs (default: the inputs of the model)",
    )  # fmt: skip
    parser.add_argument(
        "--to", dest="end", type=several(str), default=(), metavar="VALUE,...",
        help="values that become outputs (default: the outputs of the model)",
    )  # fmt: skip
    _add_part(parser)


def _add_part(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    _streams(parser, "writes", output=".onnx")


def reduce(parser: ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--check", required=True, metavar="COMMAND",
        help="it fails if its exit code is not 0; {} stands for the model, which is otherwise its last word",
    )  # fmt: skip
    parser.add_argument("--says", default="", metavar="TEXT", help="a run fails only if its output has this text")
    parser.add_argument(
        "--limit", type=reader(Positive), default=600.0, metavar="SECONDS",
        help="a run that takes longer does not fail (default 600)",
    )  # fmt: skip
    _add_part(parser)


def bisect(parser: ArgumentParser) -> None:
    _add_model(parser)
    add_options(parser, AttemptOptions)


def list_rules(parser: ArgumentParser) -> None:
    parser.add_argument("--tag", help="only rules with this property, topic or name")
    parser.add_argument("--property", choices=RULE_PROPERTIES, help="only rules with this property")
    parser.add_argument("--topic", help="only the rules of one file, by its name")
    parser.add_argument("--sound", choices=RULE_SOUNDNESS, help="only rules that are true in this sense")
    add_options(parser, RuleOptions)


def show_rule(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the rule's name")
    add_options(parser, RuleOptions)


def list_operators(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="show this operator: its arguments, types and facts")


def check_rules(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; without any, the shipped catalogue")
    _streams(parser, "reads", paths=".egg")
    parser.add_argument("--fresh", action="store_true", help="use no verdicts of earlier runs")
    parser.add_argument(
        "--samples", type=reader(PositiveInteger), default=24, metavar="N",
        help="test N samples of each side that is rewritten (default 24)",
    )  # fmt: skip


def discover_rules(parser: ArgumentParser) -> None:
    parser.add_argument("--ops", required=True, metavar="A,B,C", help="element-wise operators and reductions")
    parser.add_argument(
        "--size", type=reader(PositiveInteger), default=3, metavar="N", help="operators in the largest term (default 3)"
    )
    parser.add_argument(
        "--no-catalogue", dest="catalogue", action="store_false",
        help="also find rules that the shipped ones derive; a shipped rule is written as a comment",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE", help="the rule file to write (default: standard output)")
    _streams(parser, "writes", output=".egg")


def explain(parser: ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--output", metavar="VALUE", help="a value of the original (without: list the rewritten ones)")
    add_options(parser, RewritingOptions)


def why_not(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the rule's name")
    _add_model(parser)
    parser.add_argument("--node", required=True, metavar="N", help="the name of a node, or of one of its outputs")
    add_options(parser, RewritingOptions)


def stats(parser: ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", type=Path, help="ONNX files")
    _streams(parser, "reads", models=".onnx")
    parser.add_argument("--unused", action="store_true", help="list the rules that never match")
    add_options(parser, RewritingOptions)


# --- for shells and programs


def completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell that the script is for")


def schema(parser: ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="such as optimize, or rules list")


# --- measurements and devices


def list_measurements(parser: ArgumentParser) -> None:
    parser.add_argument("--device", metavar="D", help="only measurements on this device")
    _add_database(parser)


clear_measurements = list_measurements


def export_measurements(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.json", help="the file to write")
    _streams(parser, "writes", file=".json")
    list_measurements(parser)


def import_measurements(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.json", help="a file that `export` wrote")
    _streams(parser, "reads", file=".json")
    _add_database(parser)


def _add_database(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--database", type=Path, metavar="PATH", help="the database (default: in the user's cache folder)"
    )


def show_device(parser: ArgumentParser) -> None:
    help_ = "a name, or the path of a device file (default: host)"
    parser.add_argument("device", nargs="?", default="host", help=help_)


def measure_device(parser: ArgumentParser) -> None:
    parser.add_argument("--forget", action="store_true", help="go back to the figures known without measuring")
