"""The page of the four papers: a row for each of their items, and whatever a row names exists."""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from eqfuse.benchmarks.table5.figures import TABLE5
from eqfuse.cli.parser import build_parser

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/benchmarks/papers.md"

ITEMS = {
    "DNNFusion": (
        "Table 1", "Table 2", "Footnote 1", "Section 3.1, definitions", "Table 3",
        "Section 3.2, Extended Computational Graph", "Fig. 1", "Fig. 2", "Table 4", "Section 4.2, numbers of rules",
        "Section 4.2, greedy rewriting", "Section 4.3.1, profiling database", "Fig. 3", "Listing 1",
        "Section 4.3.2, constraint check", "Section 4.4.1, code generation rules", "Fig. 4", "Fig. 5",
        "Section 4.4.2, data formats", "Table 5", "Table 6", "Fig. 6", "Fig. 7", "Section 5.3, GPT-2's layers",
        "Fig. 8", "Fig. 9 (a)", "Fig. 9 (b)", "Fig. 10",
    ),
    "AGO": (
        "Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5", "Section III-B, iteration space", "Fig. 6", "Fig. 7",
        "Fig. 8", "Eq. 1", "Fig. 9", "Definition 1", "Definition 2", "Definition 3", "Theorem 1", "Algorithm 1",
        "Section V, SPLIT", "Section V, JOIN", "Fig. 10", "Fig. 11", "Fig. 12", "Fig. 13", "Fig. 14",
    ),
    "FuseOps": (
        "Kinds of operators", "Three fusion rules", "The example", "FuseOps(fuse_opt_level)", "Pass FuseOps",
        "Transform", "IndexedForwardGraph", "FunctionNode, Update, AddNode", "CallNode",
        "Picture of the graph in five steps", "Partition", "DominatorTree, PostDom, GetNode",
        "CombinePattern, LeastCommonAncestor", "Partition in three phases, Group", "InitGroups", "RunFuse",
        "CheckPath", "MergeFromTo, CommitFuse", "kElemWise and kBroadcast", "kOutEWiseFusable", "kInjective and kTuple",
        "Phase 2", "The example's fusion in five steps", "FuseMutator",
        "GroupInfo, GetNewArguments, MakeNewFunction",
    ),
    "GraphTurbo": (
        "Fig. 1", "Fig. 2", "Fig. 3", "Algorithm 1", "Eq. 1", "Algorithm 2", "Fig. 4", "Rule (i)", "Rule (ii)",
        "Fig. 5", "Fig. 6", "Algorithm 3", "Fig. 7", "Algorithm 4", "Fig. 8", "Fig. 9", "Section 3.6", "Fig. 10",
        "Fig. 11", "Fig. 12", "Fig. 13", "Eq. 2", "Table 1", "Table 2", "Fig. 14", "Fig. 15", "Table 3", "Fig. 16",
        "Fig. 17", "Table 4", "Fig. 18", "Table 5",
    ),
}  # fmt: skip
"""By text, in its order: tables, figures, equations, definitions, algorithms, listings and rules, and what is claimed
beside them. The walkthrough of FuseOps numbers nothing, so its items are its functions and pictures."""

PROCESSORS = {
    "measured": r"Zen \d|Xeon|processor not recorded",
    "counted": r"Cortex-A\d\d|Zen \d|device `x86-64-v\d`|any processor",
    "simulated": "stcp920",
    "predicted": r"device `[\w-]+`",
}
"""What a figure of a kind has to name: the processor that it is of, or that it depends on none."""
KINDS = {*PROCESSORS, "tested", "described", "not shown", *(f"not {kind} yet" for kind in PROCESSORS)}


@dataclass(frozen=True)
class Row:
    """A row of the page: an item of a text, how its figure here was found, and the places that show it."""

    text: str
    item: str
    how: str
    where: str

    @property
    def kinds(self) -> dict[str, str]:
        """What the column says, by kind."""
        return {kind: rest for part in self.how.split("; ") for kind, _, rest in [part.partition(": ")]}

    @property
    def names(self) -> list[str]:
        """The modules, tests and commands that the row names."""
        return re.findall(r"`([^`]+)`", self.where)


def read_rows() -> list[Row]:
    """The rows of the tables of items; tables of figures have other heads."""
    rows: list[Row] = []
    text, is_item = "", False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            text = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        is_item = is_item and bool(cells)
        if is_item and not line.startswith("|---"):
            item, _, _, how, where = cells
            rows.append(Row(text, item, how, where))
        is_item = is_item or cells == ["item", "printed", "here", "how", "where"]
    return rows


ROWS = read_rows()
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.text}, {row.item}")


@pytest.mark.parametrize("text", ITEMS)
def test_every_item_has_one_row_in_the_order_of_its_text(text: str) -> None:
    assert tuple(row.item for row in ROWS if row.text == text) == ITEMS[text]


def test_there_are_no_other_texts() -> None:
    assert list(dict.fromkeys(row.text for row in ROWS)) == list(ITEMS)


@each_row
def test_a_row_says_how_its_figures_were_found_and_on_which_processor(row: Row) -> None:
    assert row.kinds.keys() <= KINDS
    for kind, said in row.kinds.items():
        assert re.search(PROCESSORS.get(kind, r"\w"), said), f"{kind}: {said}"


@each_row
def test_a_row_is_shown_somewhere_or_says_why_not(row: Row) -> None:
    is_missing = all(kind.startswith("not ") for kind in row.kinds)
    assert row.names or "](" in row.where or (is_missing and row.where == "-")
    assert "tested" not in row.kinds or any(name.startswith("tests/") and "::" in name for name in row.names)


@pytest.mark.parametrize("name", sorted({name for row in ROWS for name in row.names}))
def test_what_a_row_names_exists(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(name)
    if program == "eqfuse":
        build_parser().parse_args(arguments)
    elif program == "python":
        _parse_as_benchmark(arguments, monkeypatch)
    else:
        file, _, defined = name.partition("::")
        assert (ROOT / file).is_file()
        assert not defined or defined in _definitions(ROOT / file)


class _ParsedError(Exception):
    """Ends a program where it has read its arguments."""


def _parse_as_benchmark(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a program of `benchmarks/` up to where its parser has taken the arguments."""

    def parse_and_stop(parser: argparse.ArgumentParser, *_: object) -> None:
        assert parser.parse_known_args(arguments[1:])[1] == []
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(_ParsedError):
        runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")


@cache
def _definitions(file: Path) -> frozenset[str]:
    """What a module defines: functions, classes and values."""
    defined: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    return frozenset(defined)


def test_layers_of_table_5_are_those_that_the_benchmark_has() -> None:
    """Layers before and after, the rate, and the share of bytes that is left."""
    section = PAGE.read_text(encoding="utf-8").split("### Table 5, model by model")[1].split("\n### ")[0]
    shown = {cells[0]: cells[1:] for cells in re.findall(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \|.*\| ([^|]+) \| [^|]+ \|$",
                                                         section, re.MULTILINE)}  # fmt: skip
    for name, printed in TABLE5.items():
        layers = f"{printed.original}, {printed.tvm or '-'}, {printed.dnnf}"
        assert shown[name] == (layers, f"{printed.rate:.2f}", f"{100 * printed.ratio:.1f} %")
