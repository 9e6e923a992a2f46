"""The commands that the documentation shows and what they print; `make docs` runs them and writes their output anew.

A fenced block ``console`` has commands after ``$ `` and the lines that each prints; ``...`` stands for lines left out.
Words behind ``console`` say more. ``slow`` keeps a block out of `make test`. In a ``measured`` block all numbers depend
on the machine, and so does which kernels there are: a line below it names the processor and the date, and only the
other words are compared. A block ``egg NAME`` is a rule file that a reader writes. Commands run in a folder that has
`examples/`, and in `models/` the models that the examples make.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
LEFT_OUT = "..."
_OF_THE_MACHINE = re.compile(r" *(kernel_|\d+ others|between kernels|measured:)")
"""How lines of a ``measured`` block begin that another processor may not have, or have in another order."""
_BLOCK = re.compile(r"^```(console|egg)([^\n]*)\n(.*?)^```\n(\n\*Measured on [^\n]*\*\n)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A command of a page, the lines shown below it, and the words behind ``console``."""

    page: str
    command: str
    shown: tuple[str, ...]
    words: frozenset[str]

    def difference(self, printed: str) -> str:
        """The first shown line that the command does not print there; "" if the page is up to date."""
        lines = list(map(self._mask, self._kept(printed.splitlines())))
        position = 0
        is_next = True
        for shown in self._kept(self.shown):
            if shown == LEFT_OUT:
                is_next = False
                continue
            wanted = self._mask(shown)
            places = [i for i in range(position, len(lines)) if lines[i] == wanted]
            if not places or (is_next and places[0] != position):
                return shown
            position, is_next = places[0] + 1, True
        is_whole = position == len(lines) or not is_next
        return "" if is_whole else f"nothing, but the command prints {lines[position]!r}"

    def _kept(self, lines: Iterable[str]) -> list[str]:
        """The lines that are the same on every machine."""
        return [line for line in lines if "measured" not in self.words or not _OF_THE_MACHINE.match(line)]

    def _mask(self, line: str) -> str:
        return mask(line) if "measured" not in self.words else re.sub(r"[-\d.,]*\d", "0", mask(line))

    def renew(self, printed: str) -> list[str]:
        """The lines to show: all of them, or the successors of those that are shown."""
        lines = [line.rstrip() for line in printed.splitlines()]
        if LEFT_OUT not in self.shown:
            return lines
        renewed: list[str] = []
        for shown in self.shown:
            place = _find_line(shown, lines)
            if shown != LEFT_OUT and place is not None:
                renewed += [LEFT_OUT, lines[place]] if place else [lines[place]]
                lines = lines[place + 1 :]
        return [*renewed, LEFT_OUT] if lines else renewed


def _find_line(shown: str, lines: list[str]) -> int | None:
    """The first line that is a shown one with other figures, or that starts with its words before the first figure."""
    same = [i for i, line in enumerate(lines) if mask(line) == mask(shown)]
    start = " ".join(re.split(r"\d", shown)[0].split()) or " ".join(shown.split()[:2])
    alike = [i for i, line in enumerate(lines) if start and " ".join(line.split()).startswith(start)]
    return next(iter([*same, *alike]), None)


def mask(line: str) -> str:
    """A line without its layout and without the figures that differ from run to run or from machine to machine."""
    line = " ".join(re.sub("─+", "─", line).split())
    if line.startswith("time: "):
        return "time: T"
    if not re.match("predicted|original|rewritten|fused only|together|lower bound", line):
        line = re.sub(r"(< )?\d[\d.]*(e[+-]?\d+)? (us|ms|s)\b", "T", line)
    line = re.sub(r"(up to|relative:|original:|max) [\d.e+-]+", r"\1 E", line)
    line = re.sub(r"[\d.]+ % of (the )?elements", "P of the elements", line)
    line = re.sub(r"tested on \d+ samples", "tested on N samples", line)
    line = re.sub(r"-?\d+\.\d{4,}|\d[\d.]*e[+-]\d+", "F", line)
    line = re.sub(r"\bhost: [\w-]+", "host: PROCESSOR", line)
    return re.sub(r"\b[0-9a-f]{12}\b|(?<=kernel_)[0-9a-f]{8}\b", "DIGEST", line)


def read_examples(page: str) -> Iterator[Example]:
    """The examples of a page."""
    for language, words, text, _ in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "console":
            for command, shown in _commands(text):
                yield Example(page, command, tuple(shown), frozenset(words.split()))


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip().splitlines()
        yield command, shown


def prepare_folder(folder: Path) -> None:
    """Give a reader's folder the examples, their models, and the rule files that the pages have the reader write."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "models").mkdir()
    (folder / "models/demo.onnx").write_bytes(_demo_model())
    runpy.run_path(str(ROOT / "examples/rules/models.py"))["main"](folder / "models")
    for page in PAGES:
        for language, words, text, _ in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            if language == "egg" and words.strip():
                (folder / words.strip()).write_text(text, encoding="utf-8")


@cache
def _demo_model() -> bytes:
    model = runpy.run_path(str(ROOT / "examples/demo_model.py"))["demo_model"]()
    return bytes(model.SerializeToString())


def run(command: str, folder: Path) -> str:
    """What a command prints in a folder; an exit code other than 0 is the last line."""
    from eqfuse.cli import main

    program, *arguments = shlex.split(command, comments=True)
    output = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        if program == "python":
            before, sys.argv = sys.argv, arguments
            try:
                runpy.run_path(arguments[0], run_name="__main__")
            finally:
                sys.argv = before
            return output.getvalue()
        code = main([*arguments])
    progress = r"(?m)^ *\d+\.\d s  .*\n"
    return re.sub(progress, "", output.getvalue()).rstrip() + (f"\nexit code {code}" if code else "") + "\n"


def renew_page(page: str, folder: Path) -> None:
    """Run the commands of a page and write what they print."""
    def renew(match: re.Match[str]) -> str:
        language, words, text, note = match.groups()
        if language == "egg":
            return match[0]
        parts = []
        for command, shown in _commands(text):
            print(f"{page}: {command}", file=sys.stderr)
            example = Example(page, command, tuple(shown), frozenset(words.split()))
            parts.append("\n".join([f"$ {command}", *example.renew(run(command, folder))]))
        note = f"\n*Measured on {_processor()}, {date.today()}.*\n" if "measured" in words.split() else note or ""
        return f"```console{words}\n" + "\n".join(parts).rstrip() + f"\n```\n{note}"

    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    path.write_text(_BLOCK.sub(renew, text), encoding="utf-8")


def _processor() -> str:
    from eqfuse.lowering.base.target import target_of
    from eqfuse.support.processor import available_cores, processor_name

    return f"{available_cores()} cores of {processor_name()} ({target_of('host', 1).cpu})"


def main(pages: list[str]) -> None:
    """Renew these pages, or all; each has a folder and a cache of its own."""
    for page in pages or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            prepare_folder(Path(folder))
            renew_page(page, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
