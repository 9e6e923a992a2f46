"""The command line. Parsing is here and in `parser`; each command is a module that is imported when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from ..errors import EqfuseError
from .parser import build_parser

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 ok, 1 error, 2 usage, 3 verification failed, 4 rule file error,
    5 a budget was hit (the output is valid), 130 interrupted."""
    arguments = build_parser().parse_args(argv)
    module, function = arguments.command
    try:
        return int(getattr(import_module(f".{module}", __package__), function)(arguments))
    except EqfuseError as error:
        return _complain(error, error.exit_code, arguments.verbose)
    except KeyboardInterrupt:
        print("eqfuse: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except MemoryError:
        print("eqfuse: error: out of memory", file=sys.stderr)
        return 1
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return _complain(EqfuseError(f"internal error: {text}; -vv shows where"), 1, arguments.verbose)


def _complain(error: EqfuseError, code: int, verbose: int) -> int:
    if verbose >= 2:
        import traceback

        traceback.print_exc()
    print(f"eqfuse: error: {error}", file=sys.stderr)
    return code
