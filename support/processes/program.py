"""Programs that are not Python, such as compilers, linkers and emulators; each ends before its call returns."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import EqfuseError
from ..scratch import scratch_environment

_COMPLAINT = re.compile(r"\berror\b|undefined reference")


class ToolError(EqfuseError):
    """A program that is missing, is too new, took too long (`timed_out`) or failed.

    Its exit status is negative for a signal; its complaint is one line, `printed` all that it wrote.
    """

    def __init__(
        self, message: str, status: int = 0, complaint: str = "", timed_out: bool = False, printed: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.complaint, self.timed_out, self.printed = status, complaint, timed_out, printed


def run_program(
    command: Sequence[str | Path],
    seconds: float,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    may_fail: bool = False,
) -> str:
    """Run the command in a folder, by default that of this process, and return its standard output.

    Without an `environment` it has that of this process, and its temporary files go with those of this process. Raises
    ToolError if it cannot be started, takes longer than `seconds` or, unless it `may_fail`, ends with an error.
    """
    name, pipe = Path(command[0]).name, subprocess.PIPE
    environment = scratch_environment() if environment is None else environment
    try:
        with subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, errors="replace", cwd=folder, env=environment
        ) as process:
            try:
                output, messages = process.communicate(timeout=seconds)
            except BaseException:
                process.kill()
                process.communicate()  # until the programs that it started have closed its pipes, too
                raise
    except subprocess.TimeoutExpired:
        raise ToolError(f"{name}: stopped after {seconds:.0f} s", timed_out=True) from None
    except OSError as error:
        raise ToolError(f"{name}: cannot be run: {error.strerror or error}") from None
    code = process.returncode
    if code and not may_fail:
        status = f"signal {-code}" if code < 0 else f"exit code {code}"
        lines = [line.strip() for line in (messages or output).splitlines() if line.strip()] or ["no message"]
        complaint = next(filter(_COMPLAINT.search, lines), lines[0])
        message = f"{name}: failed ({status}): {complaint}"
        raise ToolError(message, code, complaint, printed=output + messages)
    return output
