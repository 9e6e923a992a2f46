"""``eqfuse rules discover``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ..command_line import CommandLine

MULTIPLY = ("rules", "discover", "--ops", "Mul", "--size", "1", "--no-catalogue")


def test_the_file_goes_to_standard_output_and_the_rest_to_standard_error(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run(*MULTIPLY, "-v")
    assert outcome.code == 0
    assert outcome.out.startswith("; Rules over Mul in terms of up to 1 operator, ")
    assert "(rewrite (Mul a b) (Mul b a)\n" in outcome.out
    assert " s  discover: float32, terms of 1\n" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("2 rules, 3 equal pairs of 19 terms, ")


@pytest.mark.conformance
def test_the_checker_accepts_the_file(eqfuse: CommandLine) -> None:
    written = eqfuse.run(*MULTIPLY, "--output", "found.egg")
    assert (written.code, written.out) == (0, "")
    assert written.err.startswith("2 rules in found.egg, ")
    checked = eqfuse.run("rules", "check", "found.egg")
    assert (checked.code, checked.err) == (0, "")
    assert "discovered-mul-1" in checked.out


@pytest.mark.conformance
def test_the_file_is_what_standard_output_shows(eqfuse: CommandLine) -> None:
    eqfuse.run(*MULTIPLY, "--output", "found.egg")
    assert (eqfuse.folder / "found.egg").read_text() == eqfuse.run(*MULTIPLY).out
    assert os.listdir(eqfuse.folder) == ["found.egg"]


@pytest.mark.conformance
def test_with_the_catalogue_its_consequences_are_left_out(eqfuse: CommandLine) -> None:
    without = json.loads(eqfuse.run("rules", "discover", "--ops", "Abs", "--no-catalogue", "--json").out)
    beside = json.loads(eqfuse.run("rules", "discover", "--ops", "Abs", "--json").out)
    assert [rule["formula"] for rule in without["rules"]] == ["|a| = a", "||a|| = |a|"]
    assert (beside["rules"], beside["derived"]) == ([], beside["pairs"])


def test_no_file_is_written_where_no_rule_is_found(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run("rules", "discover", "--ops", "Exp", "--size", "1", "--output", "found.egg")
    assert (outcome.code, os.listdir(eqfuse.folder)) == (0, [])
    assert "no rules; nothing was written" in outcome.err


def test_as_json(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run(*MULTIPLY, "--json")
    content = json.loads(outcome.out)
    assert outcome.err == ""
    assert (content["operators"], content["size"], content["catalogue"], content["output"]) == (["Mul"], 1, False, None)
    rule = content["rules"][0]
    assert (rule["formula"], rule["properties"], rule["verdict"]) == ("a * b = b * a", ["commutative"], "proved")


@pytest.mark.conformance
def test_quiet(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run(*MULTIPLY, "--output", "found.egg", "-q")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ops", "Mul,Mull"), "--ops: there is no operator 'Mull'; did you mean Mul?"),
        (("--ops", "Conv"), "--ops: Conv cannot be enumerated, "),
        (("--ops", " , "), "--ops: name operators, such as Mul,Add"),
        (("--ops", "Mul", "--size", "9"), "--size 9: terms have 1 to 4 operators"),
        (("--ops", "Mul", "--size", "0"), "--size: 0 is not a number above 0"),
        (("--ops", "Mul", "--output", "no/found.egg"), "no/found.egg: the folder no does not exist"),
        (("--ops", "Mul", "--output", "."), ".: is a folder; name the file to write"),
        (("--ops", "Mul", "--output", "/dev/null"), "/dev/null: is a device or a pipe"),
        (("--ops", "Mul", "-q"), "-q without --output or --json leaves nothing to show"),
        ((), "the following arguments are required: --ops"),
    ],
)
def test_an_option_that_cannot_be_used(eqfuse: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    outcome = eqfuse.run("rules", "discover", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.error.startswith(message)


def test_an_unusable_destination_comes_before_the_work(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run(*MULTIPLY, "--output", "no/found.egg", "-v")
    assert outcome.error.startswith("no/found.egg: ")


def test_what_was_there_stays_where_the_work_fails(eqfuse: CommandLine) -> None:
    Path("found.egg").write_text("; mine\n")
    assert eqfuse.run("rules", "discover", "--ops", "Nothing", "--output", "found.egg").code == 2
    assert Path("found.egg").read_text() == "; mine\n"
