"""The arguments of `eqfuse compile` and `eqfuse tune`."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ..driver.choices import DEFAULT_TRIALS
from ..driver.compiler.options import AcceleratorOptions, CompileOptions, Settings
from .arguments import add_options
from .flags import add_model

_FIXED = ("device", "runtime", "as_functions", "certify", "certificate", "accelerator", "tuning")
"""Options of `compile` without a flag: the device is the target's, and those of accelerators and of tuning have their
own."""


def compile(parser: ArgumentParser) -> None:
    _add_bundle_to_write(parser)
    add_options(parser, CompileOptions, without=_FIXED)
    group = parser.add_argument_group("for an accelerator (--target dsa-...)")
    add_options(group, AcceleratorOptions, without=("batch",))
    group = parser.add_argument_group("for autotuned schedules (see `eqfuse tune`)")
    add_options(group, Settings, without=("intensive", "seed"))


def tune(parser: ArgumentParser) -> None:
    _add_bundle_to_write(parser)
    add_options(parser, CompileOptions, without=(*_FIXED, "time_limit"))
    group = parser.add_argument_group(
        f"search ({DEFAULT_TRIALS} candidates unless --trials says otherwise; the same command continues a search that "
        "was stopped)"
    )
    add_options(group, Settings, without=("intensive", "seed"), flags={"time_limit": "--time-limit"})
    parser.set_defaults(trials=DEFAULT_TRIALS)


def _add_bundle_to_write(parser: ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="the bundle to write")
