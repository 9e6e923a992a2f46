"""The arguments of every command. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ..support.text import printable
from ..support.version import __version__

EXIT_CODES = (
    "exit codes: 0 ok, 1 error, 2 usage, 3 verification failed, 4 rule file error, "
    "5 a budget was hit (the output is valid)"
)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that takes the optional `out` behind options too.

    That of a command gets its arguments when it is used: to add those of all commands, and to import what they are made
    from, takes longer than all else that `--help` does.
    """

    def __init__(self, *, command: _Command | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._command = command

    def filled(self) -> _Parser:
        """The parser, with its arguments. Every command takes -v, -q and --json."""
        if self._command is not None:
            command, self._command = self._command, None
            self.set_defaults(command=command.function)
            self.add_argument("-v", "--verbose", action="count", default=0, help="print more; -vv prints tracebacks")
            self.add_argument("-q", "--quiet", action="store_true", help="print errors only")
            self.add_argument("--json", action="store_true", help="print the result as JSON")
            if command.flags:
                module, _, function = command.flags.rpartition(".")
                getattr(import_module(f".{module}", __package__), function)(self)
        return self

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        self.filled()
        # argparse decides on an optional positional when it meets the one before it, and gives --measure what follows
        arguments, rest = super().parse_known_args(self._with_constants(args), namespace)
        if rest and getattr(arguments, "out", "") is None and not rest[0].startswith("-"):
            arguments.out = Path(rest.pop(0))
        return arguments, rest

    def _with_constants(self, args: Sequence[str] | None) -> list[str]:
        """The arguments, with the value of an option that no number follows: a model may follow it."""
        given = sys.argv[1:] if args is None else list(args)
        constants = {
            name: action.const for action in self._actions if action.nargs == "?" for name in action.option_strings
        }
        bare = {
            n for n, each in enumerate(given) if each in constants and not _is_number("".join(given[n + 1 : n + 2]))
        }
        return [f"{each}={constants[each]:g}" if n in bare else each for n, each in enumerate(given)]

    def error(self, message: str) -> NoReturn:
        self.exit(2, printable(f"eqfuse: error: {message}; see {self.prog} --help\n"))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Command(NamedTuple):
    """A command; `function` is ``module.function`` below `eqfuse.cli`, and so is `flags`, which adds its arguments."""

    name: str
    help: str
    function: str
    flags: str = ""


class _Group(NamedTuple):
    """Commands that have a first word in common."""

    name: str
    help: str
    description: str
    commands: tuple[_Command, ...]


_COMMANDS = (
    _Command("optimize", "rewrite a model into a cheaper equivalent one", "optimize.optimize", "flags.optimize"),
    _Command(
        "compile", "compile a model for a processor or an accelerator", "compile.compile_", "compile_flags.compile"
    ),
    _Command("tune", "compile a model with autotuned schedules", "compile.tune", "compile_flags.tune"),
    _Command("run", "run a compiled model", "run.run", "flags.run"),
    _Command("bench", "measure how long a compiled model takes", "bench.bench", "flags.bench"),
    _Command("verify", "check that two models compute the same", "inspect.verify", "flags.verify"),
    _Command("inspect", "show the parts of a model and their cost", "inspect.inspect", "flags.inspect"),
    _Command("diff", "show how two models differ, by operator and cost", "inspect.diff", "flags.diff"),
    _Command("bisect", "find the rule that makes verification fail", "rules.bisect.bisect", "flags.bisect"),
)
_GROUPS = (
    _Group(
        "rules",
        "list, check and observe rewrite rules",
        "Rewrite rules.",
        (
            _Command("list", "list the rules", "rules.catalogue.list_rules", "flags.list_rules"),
            _Command("show", "show one rule with its record", "rules.catalogue.show_rule", "flags.show_rule"),
            _Command("check", "lint, prove and test rules", "rules.check.check_rules", "flags.check_rules"),
            _Command("discover", "find rules over some operators", "rules.discover.discover_rules", "flags.discover"),
            _Command("explain", "show by which rules a value got its form", "rules.observe.explain", "flags.explain"),
            _Command(
                "why-not", "show why a rule does not match or is not used", "rules.observe.why_not", "flags.why_not"
            ),
            _Command("stats", "count how often each rule matches in some models", "rules.observe.stats", "flags.stats"),
        ),
    ),
    _Group(
        "profile",
        "list, share and remove measured latencies",
        "Latencies of sub-graphs that were measured on devices; later runs use them again.",
        (
            _Command("list", "list the measurements", "profile.list_measurements", "flags.of_device"),
            _Command("export", "write the measurements to a file", "profile.export_measurements", "flags.export"),
            _Command("import", "add the measurements of a file", "profile.import_measurements", "flags.import_"),
            _Command("clear", "remove measurements, without asking", "profile.clear_measurements", "flags.of_device"),
        ),
    ),
    _Group(
        "device",
        "list and show devices, and measure this machine",
        "Descriptions of processors, from which prices and schedules are computed.",
        (
            _Command("list", "list the devices", "device.list_devices"),
            _Command(
                "show", "print a device as TOML, each figure with its origin", "device.show_device", "flags.show_device"
            ),
            _Command("detect", "print a file of this machine, to start yours from", "device.detect_device"),
            _Command("measure", "measure this machine and keep the figures", "device.measure_device", "flags.measure"),
        ),
    ),
)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; the parsed arguments carry `command`, the function to run."""
    parser = _Parser(
        prog="eqfuse",
        description="Rewrites ONNX models by equality saturation under algebraic rules, and compiles them.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"eqfuse {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        _add_command(commands, command)
    for group in _GROUPS:
        part = commands.add_parser(group.name, help=group.help, description=group.description)
        actions = part.add_subparsers(title="actions", required=True, metavar="ACTION")
        for command in group.commands:
            _add_command(actions, command)
    return parser


def _add_command(commands: Any, command: _Command) -> None:
    description = command.help[0].upper() + command.help[1:] + "."
    commands.add_parser(command.name, help=command.help, description=description, epilog=EXIT_CODES, command=command)
