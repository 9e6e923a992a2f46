"""Options that several commands take, their types, and the declaration of a command. Imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..driver.choices import COSTS, DEFAULT_DEVICE, EXTRACTIONS, PRECISIONS, RULE_PROPERTIES, rule_topics
from ..support.options import ABOVE_ZERO, FROM_ZERO, Bound

EXIT_CODES = (
    "exit codes: 0 ok, 1 error, 2 usage, 3 verification failed, 4 rule file error, "
    "5 a budget was hit (the output is valid)"
)

Commands = argparse._SubParsersAction  # the type of add_subparsers() has no public name


def add_command(commands: Commands, name: str, help_: str, function: str) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    """Add a command; `function` is ``module.function`` below `eqfuse.cli`. Every command takes -v, -q and --json."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_, description=help_[0].upper() + help_[1:] + ".", epilog=EXIT_CODES
    )
    parser.set_defaults(command=function)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="print more; -vv prints tracebacks")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model to work on."""
    parser.add_argument("model", type=Path, help="an ONNX file")


def add_candidate(parser: argparse.ArgumentParser) -> None:
    """The model and another one to compare with it."""
    add_model(parser)
    parser.add_argument("candidate", type=Path, help="the model to compare with it")


def add_optimization(parser: argparse.ArgumentParser) -> None:
    """The options of rewriting that every command which rewrites takes."""
    add_rules(parser)
    topics, properties = ", ".join(rule_topics()), ", ".join(RULE_PROPERTIES)
    groups = f"groups are the topics {topics}, the properties {properties}, and single rules"
    parser.add_argument(
        "--only", action="extend", default=[], type=names, metavar="GROUP,...", help=f"use only these rules: {groups}"
    )
    parser.add_argument(
        "--skip", action="extend", default=[], type=names, metavar="GROUP,...",
        help="do without these rules; `eqfuse rules list` shows the rules of each group",
    )  # fmt: skip
    parser.add_argument(
        "--domain", "--domains", dest="domains", action="extend", default=[], type=names, metavar="DOMAIN,...",
        help="make operators of a runtime's own domain, too: com.microsoft is ONNX Runtime's",
    )  # fmt: skip
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="real",
        help="exact: bit-identical rules; real: equal over the reals for finite inputs, of which a NaN or inf may give "
        "another result (default); fast: overflow inside the model may change, too",
    )  # fmt: skip
    add_shapes(parser)
    add_dimensions(parser)
    add_sizes(parser)
    parser.add_argument(
        "--outputs", action="extend", default=[], type=names, metavar="NAME,...",
        help="compute only these values, outputs or values inside the graph, and leave out all that they do not need",
    )  # fmt: skip
    parser.add_argument("--opset", type=positive(int), help="use operators up to this opset (default: the model's)")
    parser.add_argument("--node-limit", type=positive(int), help="largest number of e-nodes (default 50000)")
    parser.add_argument("--iterations", type=positive(int), help="rounds of rewriting (default 200)")
    parser.add_argument("--extraction", choices=EXTRACTIONS, help="how to choose the graph (default exact)")


def names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def add_rule_trust(parser: argparse.ArgumentParser) -> None:
    """Whether the user's rules are checked before they are used."""
    parser.add_argument(
        "--trust-rules", action="store_true",
        help="use the rules of --rules without the check that refuses wrong ones; the result says so",
    )  # fmt: skip


def add_time_limit(parser: argparse.ArgumentParser, bounded: str) -> None:
    """The time limit, and what it bounds."""
    parser.add_argument("--time-limit", type=positive(float), metavar="SECONDS", help=bounded)


def add_pricing(parser: argparse.ArgumentParser) -> None:
    """What to minimise, and for which device."""
    parser.add_argument(
        "--cost", choices=COSTS, default="roofline",
        help="what to minimise; profile: measured times, and where there are none the roofline, scaled to them "
        "(default roofline)",
    )  # fmt: skip
    parser.add_argument(
        "--device", metavar="NAME|FILE.toml",
        help="the device that prices are for: a name from `eqfuse device list` or a device file (default "
        f"{DEFAULT_DEVICE} on every machine, so that results are the same; with --cost profile: host, this machine)",
    )  # fmt: skip


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Rules of the user's own."""
    parser.add_argument(
        "--rules", action="append", default=[], type=Path, metavar="FILE|DIR", help="further rules; repeatable"
    )


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Shapes of inputs to fix."""
    parser.add_argument(
        "--input-shapes", action="append", default=[], type=input_shape, metavar="NAME:1,3,224,224",
        help="fix the shape of an input (also NAME:[1,3,224,224] and NAME:1x3x224x224); repeatable",
    )  # fmt: skip


def add_dimensions(parser: argparse.ArgumentParser) -> None:
    """What the user knows of the free dimensions of inputs."""
    parser.add_argument(
        "--dim", action="append", default=[], metavar="H=32k|N>=1|N=4",
        help="a fact about a free dimension: it is a multiple of 32, at least 1, or 4; the result need not work for "
        "other sizes; repeatable",
    )  # fmt: skip


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Sizes of free dimensions that count."""
    parser.add_argument(
        "--typical", action="append", default=[], metavar="H=640",
        help="the usual size of a free dimension: choices are made for it, and compiled kernels too; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--range", action="append", default=[], metavar="H=32..1280:32",
        help="the sizes that a free dimension takes: from, to and step; others give right results too; repeatable",
    )  # fmt: skip


def add_verification(parser: argparse.ArgumentParser, purpose: str = "verify") -> None:
    """How outputs are compared, on which inputs, and how long that may take."""
    parser.add_argument("--atol", type=not_negative(float), help="absolute tolerance (default: by element type)")
    parser.add_argument("--rtol", type=not_negative(float), help="relative tolerance (default: by element type)")
    parser.add_argument(
        "--verify-limit", type=positive(float), metavar="SECONDS",
        help="seconds that verification may take (default 300, or what is left of --time-limit); what is not verified "
        "by then is not written",
    )  # fmt: skip
    parser.add_argument("--seed", type=not_negative(int), help="seed of inputs and of a search (default 0)")
    parser.add_argument(
        "--custom-ops", action="append", default=[], type=Path, metavar="LIB.so",
        help="a library of custom operators for ONNX Runtime, which runs them; repeatable",
    )  # fmt: skip
    add_inputs(parser, f"{purpose} on these inputs (default: random ones)")


def add_inputs(parser: argparse.ArgumentParser, help_: str) -> None:
    """Inputs of the user's own."""
    parser.add_argument(
        "--inputs", action="append", default=[], type=Path, metavar="FILE.npz|FOLDER",
        help=f"{help_}: an array for each input by its name; or a folder of such files, of NAME.npy, or of input_0.pb "
        "as in ONNX's test data; repeatable",
    )  # fmt: skip


Number = TypeVar("Number", int, float)


def positive(kind: Callable[[str], Number]) -> Callable[[str], Number]:
    """A converter that accepts only finite numbers above zero."""
    return _within(kind, ABOVE_ZERO)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers above zero between commas."""
    return tuple(map(positive(int), text.split(",")))


def not_negative(kind: Callable[[str], Number]) -> Callable[[str], Number]:
    """A converter that accepts only finite numbers from zero on."""
    return _within(kind, FROM_ZERO)


def _within(kind: Callable[[str], Number], bound: Bound) -> Callable[[str], Number]:
    def convert(text: str) -> Number:
        number = kind(text)
        if not bound.allows(number):
            raise argparse.ArgumentTypeError(f"{text} is not {bound.text}")
        return number

    convert.__name__ = kind.__name__  # argparse names it in its message about a text that is no number
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
