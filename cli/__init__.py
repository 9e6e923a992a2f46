"""The command line: `main` parses, imports the module of the command, runs it, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ..support.deadlines import start_command
from ..support.errors import EqfuseError, UsageError
from ..support.processes.forked_process import allow_forks
from .terminal import prepare_streams, print_as, write, write_error


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 ok, 1 error, 2 usage, 3 verification failed, 4 rule file error,
    5 a budget was hit (the output is valid), 130 interrupted, 143 terminated."""
    has_output = prepare_streams()
    # numpy's threads take longer to start than most commands calculate, and spin while they wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if argv is None:  # this process runs only the command
        start_command()
        allow_forks()
        _collect_rarely()
    arguments = argparse.Namespace(verbose=0, json="--json" in (sys.argv[1:] if argv is None else argv))
    with _Interruption() as interruption:
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
            if number is not None:  # a library may have turned the exception into another
                return _report_interruption(arguments, number)
            if isinstance(error, SystemExit):
                raise
            return _report_error(error, arguments)


def _collect_rarely() -> None:
    """Have cyclic garbage collected less often, and not when the process ends: both took a third of a short command."""
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)


_AGAIN = 3.0
"""Seconds after which the signal is sent again: an exception that is raised in a finalizer, or in a library that is
being imported, may get lost. Temporary files are removed sooner."""


class _Interruption:
    """Turns SIGINT and SIGTERM into exceptions, after which temporary files and processes are removed; keeps the number
    of the first signal."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._again: threading.Timer | None = None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._leave)
            if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # a shell lets background jobs ignore it
                signal.signal(signal.SIGINT, self._leave)

    def _leave(self, number: int, _: object) -> NoReturn:
        self.number = self.number or number
        self._cancel()
        self._again = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
        self._again.daemon = True
        self._again.start()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _cancel(self) -> None:
        if self._again is not None:
            self._again.cancel()

    def __enter__(self) -> _Interruption:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()


def _run(arguments: argparse.Namespace) -> int:
    module, _, function = arguments.command.rpartition(".")
    with files_for_streams(arguments):
        code = int(getattr(import_module(f".{module}", __package__), function)(arguments))
    sys.stdout.flush()
    return code


def _report_interruption(arguments: argparse.Namespace, number: int) -> int:
    """Write a line about SIGINT, which a user sent. Returns the exit code of a signal."""
    if number == signal.SIGINT:
        kept = "; measurements are kept: the same command continues" if vars(arguments).get("trials") else ""
        write(f"eqfuse: interrupted; no file is half written{kept}", error=True)
    return 128 + number


def _report_error(error: BaseException, arguments: argparse.Namespace) -> int:
    """Write one line on an error, and with --json an object. Returns the exit code."""
    from ..support.options import OptionError  # help alone is printed without the options

    if isinstance(error, OSError):
        _drop_output()
    if isinstance(error, BrokenPipeError):
        return 1
    if isinstance(error, OptionError):
        message, code = f"--{error.name.replace('_', '-')}: {error.problem}", error.exit_code
    elif isinstance(error, EqfuseError):
        message, code = str(error), error.exit_code
    elif isinstance(error, MemoryError):
        message, code = "out of memory", 1
    elif isinstance(error, OSError):
        place = error.filename or "standard output or a temporary file"
        message, code = f"{place}: {error.strerror or error}", 1
    else:
        message, code = f"internal error: {type(error).__name__}: {error}; -vv shows where", 1
    if arguments.verbose >= 2:
        import traceback

        write(traceback.format_exc(), error=True, end="")
    line = write_error(message)
    if vars(arguments).get("json") and not isinstance(error, OSError):
        from .render import print_json

        with suppress(OSError):
            print_json({"error": line, "exit_code": code})
            sys.stdout.flush()
    return code


def _drop_output() -> None:
    """Send the rest of the output to /dev/null, so that the interpreter does not fail when it flushes at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _silence_libraries() -> None:
    """Hide the log messages and warnings of libraries from the user: problems come as eqfuse's own errors."""
    import logging
    import warnings

    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


_STREAM = Path("-")


@contextmanager
def files_for_streams(arguments: argparse.Namespace) -> Iterator[None]:
    """Put files in the place of `-` while a command runs: standard input for one that it reads, and for one that it
    writes standard output, to which it then prints nothing else.

    `arguments.reads` and `arguments.writes` have the arguments that may be streams, with the end of such a file's name.
    Raises UsageError for any other argument, and for two that are one stream.
    """
    given = vars(arguments)
    streams = [name for name, value in given.items() if _STREAM in (value if isinstance(value, list) else [value])]
    if not streams:
        yield
        return
    read, written = ([name for name in streams if name in each] for each in (arguments.reads, arguments.writes))
    if others := set(streams) - {*read, *written}:
        raise UsageError(f"{min(others)}: - is a stream, which cannot be used here; name a file or a folder")
    if len(read) > 1 or any(isinstance(given[name], list) and given[name].count(_STREAM) > 1 for name in read):
        raise UsageError("- is standard input, which has one model; name a file for the other")
    if len(written) > 1:
        raise UsageError("- is standard output, which takes one file; name another for the second")
    if written and arguments.json:
        raise UsageError("--json and the file would both go to standard output; name a file")
    from ..support.scratch import scratch_folder  # few commands need a folder

    with scratch_folder("pipes") as folder:
        for name in read:
            path = Path(folder) / f"standard-input{arguments.reads[name]}"
            _keep_input(path)
            _replace(given, name, path)
        output = None
        for name in written:
            output = Path(folder) / f"standard-output{arguments.writes[name]}"
            _replace(given, name, output)
            arguments.quiet = True
        yield
        if output is not None and output.exists():
            if set(Path(folder).glob("standard-output*")) - {output}:
                raise EqfuseError("the model has weights in files of their own, so it fits no pipe; name a file for it")
            with output.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)


def _keep_input(path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    if not path.stat().st_size:
        raise EqfuseError("standard input is empty; pipe a file into it, or name one")
    print_as(str(path), "standard input")


def _replace(given: dict[str, Any], name: str, path: Path) -> None:
    value = given[name]
    given[name] = [path if each == _STREAM else each for each in value] if isinstance(value, list) else path
