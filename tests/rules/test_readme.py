"""The examples of the README are rules that load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eqfuse.rules
from eqfuse.rules.lint import lint_files
from eqfuse.rules.sexpr import read

README = Path(str(eqfuse.rules.__file__)).with_name("README.md")


def examples() -> list[str]:
    """The indented blocks, with names that the shipped rules do not have."""
    blocks = re.findall(r"(?:^    .*\n)+", README.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r':name "', ':name "readme-', re.sub("^    ", "", block, flags=re.MULTILINE)) for block in blocks]


@pytest.mark.parametrize("example", examples())
def test_example_is_clean(example: str) -> None:
    assert [str(problem) for problem in lint_files([example])] == []


def test_there_are_six_examples() -> None:
    assert [len(read(example).forms) for example in examples()] == [1] * 6
