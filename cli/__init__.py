"""The command line. Parsing is here and in `parser`; each command is a module that is imported when it runs."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from ..errors import EqfuseError
from .interruption import Interruption
from .terminal import prepare_streams, write


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 ok, 1 error, 2 usage, 3 verification failed, 4 rule file error,
    5 a budget was hit (the output is valid), 130 interrupted, 143 terminated."""
    has_output = prepare_streams()
    arguments = argparse.Namespace(verbose=0)
    with Interruption() as interruption:
        try:
            from .parser import build_parser

            build_parser().parse_args(argv, arguments)
            if arguments.verbose < 2:
                _silence_libraries()
            if not has_output and (arguments.json or not arguments.quiet):
                raise EqfuseError("standard output is closed; send it to a file or to /dev/null, or say --quiet")
            return _run(arguments)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else interruption.number
            if number is not None:  # whatever a library made of the exception
                return _stopped(arguments, number)
            if isinstance(error, SystemExit):
                raise
            return _explained(error, arguments.verbose)


def _run(arguments: argparse.Namespace) -> int:
    module, _, function = arguments.command.rpartition(".")
    code = int(getattr(import_module(f".{module}", __package__), function)(arguments))
    sys.stdout.flush()
    return code


def _stopped(arguments: argparse.Namespace, number: int) -> int:
    """Say so, where a user did it."""
    kept = "; what was measured is kept: the same command goes on" if vars(arguments).get("trials") else ""
    if number == signal.SIGINT:
        write(f"eqfuse: interrupted; no file is half written{kept}", error=True)
    return 128 + number


def _explained(error: BaseException, verbose: int) -> int:
    """One line on what went wrong; the exit code."""
    if isinstance(error, BrokenPipeError):
        _drop_output()
        return 1
    if isinstance(error, EqfuseError):
        return _complain(str(error), error.exit_code, verbose)
    if isinstance(error, MemoryError):
        return _complain("out of memory", 1, verbose)
    if isinstance(error, OSError):
        _drop_output()
        return _complain(_system_error(error), 1, verbose)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return _complain(f"internal error: {text}; -vv shows where", 1, verbose)


def _drop_output() -> None:
    """Let the interpreter flush what cannot be written into nothing when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _system_error(error: OSError) -> str:
    return f"{error.filename or 'standard output or a temporary file'}: {error.strerror or error}"


def _silence_libraries() -> None:
    """Keep what libraries log or warn of away from the user: what matters comes as an error of our own."""
    import logging
    import warnings

    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def _complain(message: str, code: int, verbose: int) -> int:
    if verbose >= 2:
        import traceback

        write(traceback.format_exc(), error=True, end="")
    write(f"eqfuse: error: {' '.join(message.split())}", error=True)
    return code
