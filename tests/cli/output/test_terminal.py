"""What reaches a terminal: names are shown, never obeyed, whatever they hold and whatever takes the output."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import helper

import eqfuse.cli
from eqfuse.support.text import printable

from ..command_line import RECORD, CommandLine

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202egnp.\u2066\x9b31m"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\u202egnp.\u2066\x9b31m"


def hostile(eqfuse: CommandLine, name: str = "in.onnx") -> Path:
    """A model whose nodes, values and domains carry commands for terminals."""
    nodes = [
        helper.make_node("Relu", ["x"], [f"a{HOSTILE}"], name=f"n{HOSTILE}"),
        helper.make_node("Relu", [f"a{HOSTILE}"], ["y"], name=f"m{HOSTILE}"),
    ]
    return eqfuse.model(name, nodes)


def test_printable_spells_out_what_is_not_seen() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("größe 名\n\tx") == "größe 名\n\tx"
    assert printable("\udc80\u200b\u2028\r") == r"\udc80\u200b\u2028\r"


@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize", "in.onnx", "-v", "--partition", "ago"),
        ("inspect", "in.onnx", "--partition", "ago"),
        ("verify", "in.onnx", "in.onnx"),
        ("diff", "in.onnx", f"{HOSTILE}.onnx"),
        ("rules", "explain", "in.onnx"),
        ("rules", "explain", "in.onnx", "--output", "y"),
        ("rules", "why-not", "relu-relu", "in.onnx", "--node", HOSTILE),
        ("optimize", f"missing{HOSTILE}"),
        ("optimize", "foreign.onnx"),
        ("optimize", "foreign.onnx", "-vv"),
        ("optimize", "in.onnx", "--rules", "bad.egg"),
        (HOSTILE,),
        ("optimize", "in.onnx", "--precision", HOSTILE),
    ],
    ids=lambda arguments: re.sub(r"[^a-z -]", "", " ".join(arguments)),
)
def test_no_command_reaches_the_terminal(eqfuse: CommandLine, arguments: tuple[str, ...]) -> None:
    hostile(eqfuse)
    hostile(eqfuse, f"{HOSTILE}.onnx")
    eqfuse.model("foreign.onnx", [helper.make_node(HOSTILE, ["x"], ["y"], domain=HOSTILE)])
    eqfuse.write("bad.egg", f"{RECORD}(rewrite (Add a b) (Sub {HOSTILE} b))\n")
    outcome = eqfuse.run(*arguments)
    assert outcome.out + outcome.err
    assert printable(outcome.out) == outcome.out
    assert printable(outcome.err) == outcome.err


def test_a_name_cannot_break_a_row(eqfuse: CommandLine) -> None:
    eqfuse.model("in.onnx", [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Relu", ["z"], ["y"])])
    eqfuse.model("other.onnx", [helper.make_node("F", ["x"], ["y"], domain="two\nlines")])
    assert "two\nlines" not in eqfuse.run("diff", "in.onnx", "other.onnx").out


def test_json_is_ascii(eqfuse: CommandLine) -> None:
    hostile(eqfuse)
    out = eqfuse.run("inspect", "in.onnx", "--partition", "ago", "--json").out
    assert out.isascii()
    assert printable(out) == out
    assert f"n{HOSTILE}" in json.loads(out)["partition"]["groups"][0]["operators"]


def test_a_report_cannot_turn_text_around(eqfuse: CommandLine) -> None:
    hostile(eqfuse)
    assert eqfuse.run("optimize", "in.onnx", "--report", "r.html").code == 0
    page = (eqfuse.folder / "r.html").read_text(encoding="utf-8")
    assert not {"\u202e", "\u2066", "\x1b", "\x9b"} & set(page)
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    text = json.dumps(data, ensure_ascii=False)
    assert "\u202e" not in text
    assert r"\\u202e" in text


def test_only_one_function_prints() -> None:
    folder = Path(eqfuse.cli.__file__).parent
    printing = {f.name for f in folder.rglob("*.py") if re.search(r"(?<![\w.])print\(", f.read_text(encoding="utf-8"))}
    assert printing == set()


def test_characters_that_the_output_lacks_are_spelled_out(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    eqfuse.small("größe.onnx")
    outcome = eqfuse.spawn("inspect", "größe.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    assert r"gr\xf6\xdfe.onnx" in outcome.out
    assert outcome.out.isascii()


def closing(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def test_a_closed_output_is_an_error_before_the_work(eqfuse: CommandLine) -> None:
    eqfuse.small()
    outcome = eqfuse.spawn("optimize", "in.onnx", "out.onnx", before=closing(1))
    assert outcome.code == 1
    assert outcome.error == "standard output is closed; send it to a file or to /dev/null, or say --quiet"
    assert eqfuse.files() == ["in.onnx"]


@pytest.mark.parametrize("numbers", [(1,), (0, 1, 2)])
def test_nobody_listens_to_a_quiet_command(eqfuse: CommandLine, numbers: tuple[int, ...]) -> None:
    """The numbers of closed streams must not go to files that are opened, such as the model."""
    content = eqfuse.small().read_bytes()
    outcome = eqfuse.spawn("optimize", "in.onnx", "out.onnx", "-q", before=closing(*numbers))
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert eqfuse.files() == ["in.onnx", "out.onnx"]
    assert (eqfuse.folder / "in.onnx").read_bytes() == content
