"""The arguments of every command. Imports nothing heavy, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ..support.errors import UsageError
from ..support.version import __version__

EXIT_CODES = (
    "exit codes: 0 ok, 1 error, 2 usage, 3 verification failed, 4 rule file error, "
    "5 a budget was hit (the output is valid)"
)


_GENERAL = re.compile(r"-v+|--verbose|-q|--quiet|--json")
"""The flags of every command."""
_ALIKE = 0.75
"""How alike a mistyped option and the one that is suggested are at least (difflib's ratio): --force is no --order."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that takes the optional `out` behind options too.

    The parser of a command adds its arguments when it is used: adding those of all commands, and importing the options
    that they are made from, takes longer than all else that `--help` does.
    """

    def __init__(self, *, function: str = "", group: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self._function, self._group = function, group

    def filled(self) -> _Parser:
        """The parser, with its arguments. Every command takes -v, -q and --json."""
        function, group, self._function, self._group = self._function, self._group, "", ""
        if group:
            _add_commands(self, group, title="actions", metavar="ACTION")
        if function:
            self.set_defaults(command=function, reads={}, writes={})
            self.add_argument("-v", "--verbose", action="count", default=0, help="print more; -vv prints tracebacks")
            self.add_argument("-q", "--quiet", action="store_true", help="print errors only")
            self.add_argument("--json", action="store_true", help="print the result as JSON")
            if add_arguments := getattr(import_module(".flags", __package__), function.rpartition(".")[2], None):
                add_arguments(self)
        return self

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        self.filled()
        if self._subparsers is not None and not (sys.argv[1:] if args is None else args):
            self.print_help()
            self.exit(0)
        args = _general_flags_last(sys.argv[1:] if args is None else args)
        self._refuse_unknown_options(args)
        # argparse decides on an optional positional at the one before it, and gives the text behind --measure to that
        arguments, rest = super().parse_known_args(self._with_constants(args), namespace)
        if rest and getattr(arguments, "out", "") is None and not rest[0].startswith("-"):
            arguments.out = Path(rest.pop(0))
        if rest:
            self.error(
                f"there is no option {rest[0]}" if rest[0].startswith("-") else f"{rest[0]} is one argument too many"
            )
        return arguments, rest

    def _refuse_unknown_options(self, args: Sequence[str]) -> None:
        """End with an error that names an option like the first unknown one: argparse complains about whatever else is
        missing, or takes the value behind it for a model. Options behind a command are left to its parser."""
        for each in args:
            if each == "--" or (self._subparsers is not None and not each.startswith("-")):
                return
            option = each.partition("=")[0]
            known = self._option_string_actions
            if option.startswith("--") and not any(name.startswith(option) for name in known):
                near = get_close_matches(option[2:], [name[2:] for name in known], 1, _ALIKE)
                self.error(f"there is no option {option}{f'; did you mean --{near[0]}?' if near else ''}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does, with the choice that looks like a mistyped one."""
        choices = list(map(str, action.choices or ()))
        if not choices or str(value) in choices:
            return
        near = get_close_matches(str(value), choices, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"there is no {str(action.metavar).lower()} {str(value)!r}; {hint}")
        raise argparse.ArgumentError(action, f"there is no {str(value)!r}; {hint}")

    def _with_constants(self, args: Sequence[str] | None) -> list[str]:
        """The arguments, with a default behind an option that no number follows, for a model may follow it."""
        given = sys.argv[1:] if args is None else list(args)
        constants = {
            name: action.const for action in self._actions if action.nargs == "?" for name in action.option_strings
        }
        bare = {
            n for n, each in enumerate(given) if each in constants and not _is_number("".join(given[n + 1 : n + 2]))
        }
        return [f"{each}={constants[each]:g}" if n in bare else each for n, each in enumerate(given)]

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')}; see {self.prog} --help")


def _general_flags_last(given: Sequence[str]) -> list[str]:
    """The arguments with the flags of every command behind the command, where they are known: `eqfuse -v inspect m`."""
    count = next((number for number, each in enumerate(given) if not _GENERAL.fullmatch(each)), 0)
    command = [*given[count:]]
    place = command.index("--") if "--" in command else len(command)
    return [*command[:place], *given[:count], *command[place:]]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_COMMANDS = {
    "optimize": ("rewrite a model into an equivalent one of lower cost", "optimize.optimize"),
    "compile": ("compile a model for a processor or an accelerator", "compile.compile_"),
    "tune": ("compile a model with autotuned schedules", "compile.tune"),
    "run": ("run a compiled model", "run.run"),
    "bench": ("measure the time of a compiled model", "bench.bench"),
    "report": ("draw a compiled model over time, for a browser", "report.report"),
    "verify": ("check that two models compute the same", "inspect.verify"),
    "inspect": ("show the parts of a model and their cost", "inspect.inspect"),
    "diff": ("show how two models differ, by operator and cost", "inspect.diff"),
    "extract": ("write the part of a model between some values", "parts.extract"),
    "reduce": ("write the smallest part of a model for which a command fails", "parts.reduce"),
    "bisect": ("find the rule that makes verification fail", "rules.bisect.bisect"),
    "completion": ("print the script by which a shell completes commands", "shell.completion"),
    "schema": ("print the JSON schema of the output of a command", "shell.schema"),
    "rules list": ("list the rules", "rules.catalogue.list_rules"),
    "rules show": ("show one rule with its record", "rules.catalogue.show_rule"),
    "rules operators": ("list the operators of rules, or show one", "rules.catalogue.list_operators"),
    "rules check": ("lint, prove and test rules", "rules.check.check_rules"),
    "rules discover": ("find rules over some operators", "rules.discover.discover_rules"),
    "rules explain": ("show by which rules a value got its form", "rules.observe.explain"),
    "rules why-not": ("show why a rule does not match or is not used", "rules.observe.why_not"),
    "rules stats": ("count how often each rule matches in some models", "rules.observe.stats"),
    "profile list": ("list the measurements", "profile.list_measurements"),
    "profile export": ("write the measurements to a file", "profile.export_measurements"),
    "profile import": ("add the measurements of a file", "profile.import_measurements"),
    "profile clear": ("remove measurements, without asking", "profile.clear_measurements"),
    "device list": ("list the devices", "device.list_devices"),
    "device show": ("print a device as TOML, each figure with its origin", "device.show_device"),
    "device detect": ("print a file of this machine, to start yours from", "device.detect_device"),
    "device measure": ("measure this machine and keep the figures", "device.measure_device"),
}
"""The sentence of each command, and its function, ``module.function`` below `eqfuse.cli`. The function of the same name
in `flags.py` adds its arguments."""
_GROUPS = {
    "rules": ("list, check and observe rewrite rules", "Rewrite rules."),
    "profile": (
        "list, share and remove measured latencies",
        "Latencies of sub-graphs that were measured on devices; later runs use them again.",
    ),
    "device": (
        "list and show devices, and measure this machine",
        "Descriptions of processors, from which costs and schedules are computed.",
    ),
}
"""The sentence and the description of each group of commands."""


def build_parser() -> _Parser:
    """The whole command line; the parsed arguments carry `command`, the function to run."""
    parser = _Parser(
        prog="eqfuse",
        description="Rewrites ONNX models by equality saturation under algebraic rules, and compiles them.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"eqfuse {__version__}")
    commands = _add_commands(parser, "", title="commands", metavar="COMMAND")
    for name, (help_, description) in _GROUPS.items():
        commands.add_parser(name, help=help_, description=description, group=name)
    return parser


def fill(parser: _Parser) -> Iterator[_Parser]:
    """Add the arguments of a parser and of all below it, and give each of them."""
    yield parser.filled()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from fill(each)


def _add_commands(parser: _Parser, group: str, **titles: str) -> Any:
    """Add the commands of a group, or those of none."""
    commands: Any = parser.add_subparsers(required=True, **titles)
    for name, (help_, function) in _COMMANDS.items():
        first, _, rest = name.rpartition(" ")
        if first == group:
            description = f"{help_[0].upper()}{help_[1:]}."
            commands.add_parser(rest, help=help_, description=description, epilog=EXIT_CODES, function=function)
    return commands
