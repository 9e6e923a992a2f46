"""``eqfuse rules list``, ``show``, ``operators`` and ``check``."""

from __future__ import annotations

import json

import onnx
import pytest
from onnx import helper

from eqfuse.driver.rules.catalogue import describe_operator
from eqfuse.ir.operators import OPERATORS
from eqfuse.rules.places import shipped_files
from eqfuse.tools.checking import check

from ...caches import own_cache
from ..command_line import RECORD, CommandLine

TRUE = """\
(rewrite (Sqrt (Exp (Sqrt x))) (Exp (Mul (Sqrt x) (Full (vec-empty) 0.5 t)))
         :when ((= t (dtype x))) :ruleset explore :name "root-of-root")"""
RECORD_OF_TRUE = RECORD.replace("exact", "real").replace(
    "(Add a b) => (Mul a b)", '(Sqrt (Exp (Sqrt x))) => (Exp (Mul (Sqrt x) (Full (vec-empty) 0.5 "float32")))'
)
THRICE = '(rewrite (Abs (Abs (Abs x))) (Abs x) :ruleset explore :name "thrice")'
RECORD_OF_THRICE = RECORD.replace("(Add a b) => (Mul a b)", "(Abs (Abs (Abs x))) => (Abs x)")
OWN = '(rewrite (Add a b) (Mul a b) :ruleset explore :name "made-up")'


def test_list_counts_the_rules_by_property(eqfuse: CommandLine) -> None:
    lines = eqfuse.run("rules", "list").out.splitlines()
    assert int(lines[0].removesuffix(" rules")) > 300
    assert "distributive" in lines[-1]


def test_list_by_tag(eqfuse: CommandLine) -> None:
    rules = json.loads(eqfuse.run("rules", "list", "--tag", "distributive", "--json").out)["rules"]
    assert rules
    assert {"distributive" in rule["properties"] for rule in rules} == {True}


def test_list_has_the_users_rules(eqfuse: CommandLine) -> None:
    eqfuse.rule("own.egg", OWN)
    outcome = eqfuse.run("rules", "list", "--rules", "own.egg", "--tag", "made-up")
    assert outcome.code == 0
    assert ["made-up", "own", "strength", "exact"] in [line.split()[:4] for line in outcome.out.splitlines()]


def test_rows_of_a_pipe_are_not_folded(eqfuse: CommandLine) -> None:
    rule = max((r for f in shipped_files() for r in f.rules if not r.derives), key=lambda r: len(r.formula))
    assert rule.formula in eqfuse.run("rules", "list", "--tag", rule.base).out


def test_show_prints_the_record_and_the_rule(eqfuse: CommandLine) -> None:
    eqfuse.rule("own.egg", OWN)
    outcome = eqfuse.run("rules", "show", "made-up", "--rules", "own.egg")
    expected = ("own.egg:7:1", "a + b = a * b", "strength", "exact", "derived", "(Add a b) => (Mul a b)", OWN)
    assert outcome.code == 0
    assert [text for text in expected if text not in outcome.out] == []


def test_show_as_json(eqfuse: CommandLine) -> None:
    eqfuse.rule("own.egg", OWN)
    content = json.loads(eqfuse.run("rules", "show", "made-up", "--rules", "own.egg", "--json").out)
    assert (content["name"], content["file"], content["text"]) == ("made-up", "own.egg:7:1", OWN)


def test_show_suggests_a_name(eqfuse: CommandLine) -> None:
    eqfuse.rule("own.egg", OWN)
    assert "did you mean made-up?" in eqfuse.fail(2, "rules", "show", "made-upp", "--rules", "own.egg")


def test_operators_are_listed_as_rules_write_them(eqfuse: CommandLine) -> None:
    said = eqfuse.run("rules", "operators").out
    assert f"{len(OPERATORS)} operators" in said
    assert "(Conv X W B? kernel_shape pads strides dilations group)" in said


def test_an_operator_with_its_types_and_facts(eqfuse: CommandLine) -> None:
    said = eqfuse.run("rules", "operators", "Softmax").out
    assert said.startswith("(Softmax input axis)")
    assert "axis         i64, by default -1" in said
    assert "float16, float32, float64" in said
    assert "(nonneg e) by analysis.sign.Softmax" in " ".join(said.split())


def test_an_operator_as_json(eqfuse: CommandLine) -> None:
    record = json.loads(eqfuse.run("rules", "operators", "Clip", "--json").out)
    assert record["term"] == "(Clip input min? max?)"
    assert [each["optional"] for each in record["operands"]] == [False, True, True]
    assert record["read_by"] > 3


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_can_be_shown(name: str) -> None:
    record = describe_operator(name)
    assert record.term.startswith(f"({name} ") or record.term == f"({name})"
    assert len(record.operands) + len(record.attributes) == len(OPERATORS[name].arguments)


def test_operators_suggest_a_name(eqfuse: CommandLine) -> None:
    assert "did you mean Softmax?" in eqfuse.fail(2, "rules", "operators", "Sofmax")


def test_an_unknown_tag(eqfuse: CommandLine) -> None:
    assert "did you mean distributive?" in eqfuse.fail(2, "rules", "list", "--tag", "distributiv")


def test_check_proves_a_true_rule(eqfuse: CommandLine) -> None:
    eqfuse.rule("own.egg", TRUE, RECORD_OF_TRUE)
    outcome = eqfuse.run("rules", "check", "own.egg")
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["root-of-root", "own", "proved", "every", "rank", "and", "size"] in [row[:7] for row in rows]
    assert ["strength", "1", "1", "1", "0", "0", "0", "0", "0", "0"] in rows


@pytest.mark.parametrize("path", ["own.egg", "."])
def test_check_prints_a_counterexample(eqfuse: CommandLine, path: str) -> None:
    eqfuse.rule("own.egg", OWN)
    outcome = eqfuse.run("rules", "check", path)
    assert outcome.code == 4
    assert "own.egg:7:1: made-up is refuted: values differ" in outcome.err
    assert "for (Add a:" in outcome.err
    assert "    a = " in outcome.err
    assert outcome.err.endswith("eqfuse: error: 1 of 1 rules may not be used\n")


def test_check_gives_the_counterexample_as_json(eqfuse: CommandLine) -> None:
    eqfuse.rule("own.egg", OWN)
    outcome = eqfuse.run("rules", "check", "own.egg", "--json")
    (rule,) = json.loads(outcome.out)["rules"]
    assert outcome.code == 4
    assert rule["verdict"] == "refuted"
    assert set(rule["counterexample"]["elements"]) == {"a", "b"}


def test_check_keeps_its_verdicts(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(eqfuse.folder / "kept"))
    eqfuse.rule("own.egg", THRICE, RECORD_OF_THRICE)
    first = eqfuse.run("rules", "check", "own.egg")
    (verdict,) = (eqfuse.folder / "kept" / "eqfuse" / "rules").iterdir()
    verdict.write_text(verdict.read_text().replace("every rank and size", "as kept before"))
    assert "as kept before" in eqfuse.run("rules", "check", "own.egg").out
    assert eqfuse.run("rules", "check", "own.egg", "--fresh").out == first.out


def test_check_warns_of_what_a_shipped_rule_says(eqfuse: CommandLine) -> None:
    """It is as right as that one, and the other rules of the file have their verdicts."""
    again = '(rewrite (Relu (Relu y)) (Relu y) :ruleset simplify :name "again")'
    record = RECORD.replace("(Add a b) => (Mul a b)", "(Relu (Relu y)) => (Relu y)")
    eqfuse.rule("own.egg", f"{again}\n{RECORD}{OWN}", record)
    outcome = eqfuse.run("rules", "check", "own.egg")
    assert outcome.code == 4
    assert "warning: own.egg:7:1: the rule says the same as relu-relu (identities.egg:" in outcome.err
    assert "own.egg:14:1: made-up is refuted: values differ" in outcome.err
    assert "1 of 2 rules may not be used" in outcome.err


def test_check_accepts_what_a_shipped_rule_says(eqfuse: CommandLine) -> None:
    record = RECORD.replace("(Add a b) => (Mul a b)", "(Relu (Relu y)) => (Relu y)")
    eqfuse.rule("own.egg", '(rewrite (Relu (Relu y)) (Relu y) :ruleset simplify :name "again")', record)
    assert eqfuse.run("rules", "check", "own.egg").code == 0


def test_check_refutes_bits_that_a_shipped_rule_does_not_claim(eqfuse: CommandLine) -> None:
    """neg-sub is `real`: 0 - 0 is 0, its opposite -0."""
    record = RECORD.replace("(Add a b) => (Mul a b)", "(Neg (Sub a b)) => (Sub b a)")
    assert "@sound exact" in record
    eqfuse.rule("own.egg", '(rewrite (Neg (Sub a b)) (Sub b a) :ruleset explore :name "again")', record)
    outcome = eqfuse.run("rules", "check", "own.egg")
    assert outcome.code == 4
    assert "again is refuted" in outcome.err


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (OWN[:-1], "bad.egg:7:1: "),
        (OWN.replace("(Mul a b)", "(Mul a c)"), "bad.egg:7:27: the variable c"),
        (OWN.replace("Add", "Addd"), "bad.egg:7:10: there is no constructor or function Addd"),
        (f"{OWN}\n{RECORD}{OWN}", "bad.egg:14:1: the name made-up is taken by the rule at bad.egg:7"),
        (OWN.replace("made-up", "relu-relu"), "bad.egg:7:1: the name relu-relu is taken"),
        (f"{OWN}\n\n{OWN.replace('made-up', 'bare')}", "bad.egg:9:1: the rule has no comment"),
    ],
    ids=["syntax", "unbound variable", "unknown operator", "duplicate name", "shipped name", "no record"],
)
def test_check_names_the_place(eqfuse: CommandLine, command: str, place: str) -> None:
    eqfuse.rule("bad.egg", command)
    outcome = eqfuse.run("rules", "check", "bad.egg")
    lines = outcome.err.splitlines()
    assert outcome.code == 4
    assert outcome.out == ""
    assert lines[0].startswith(place)
    assert lines[-1].startswith("eqfuse: error: ")
    assert lines[-1].endswith(" in 1 file")


def test_check_as_json(eqfuse: CommandLine) -> None:
    eqfuse.rule("bad.egg", OWN.replace("Add", "Addd"))
    outcome = eqfuse.run("rules", "check", "bad.egg", "--json")
    (problem,) = json.loads(outcome.out)["problems"]
    assert outcome.code == 4
    assert (problem["path"], problem["line"], problem["column"]) == ("bad.egg", 7, 10)


@pytest.mark.parametrize(("path", "message"), [("no.egg", "no.egg: "), ("empty", "empty: no .egg file")])
def test_check_of_what_is_not_there(eqfuse: CommandLine, path: str, message: str) -> None:
    (eqfuse.folder / "empty").mkdir()
    assert eqfuse.fail(4, "rules", "check", path).startswith(message)


def test_quiet_lists_nothing(eqfuse: CommandLine) -> None:
    outcome = eqfuse.run("rules", "list", "-q")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


# --- using rules


@pytest.fixture
def adder(eqfuse: CommandLine) -> CommandLine:
    """A model that the rule OWN would change, and that rule."""
    eqfuse.model("in.onnx", [helper.make_node("Add", ["x", "x"], ["y"])])
    eqfuse.rule("own.egg", OWN)
    return eqfuse


@pytest.mark.parametrize("command", ["optimize", pytest.param("compile", marks=pytest.mark.conformance)])
def test_a_wrong_rule_is_not_used(adder: CommandLine, command: str) -> None:
    outcome = adder.run(command, "in.onnx", "-o", "out", "--rules", "own.egg")
    assert outcome.code == 4
    assert outcome.error.startswith("own.egg:7:1: rule made-up is refuted: values differ (Mul, ")
    assert ", a = " in outcome.error
    assert adder.files() == ["in.onnx", "own.egg"]


def test_a_trusted_rule_is_used_and_the_model_says_so(adder: CommandLine) -> None:
    outcome = adder.run("optimize", "in.onnx", "out.onnx", "--rules", "own.egg", "--trust-rules", "--no-verify")
    assert outcome.code == 0
    assert "rules: own.egg used unchecked (--trust-rules)\n" in outcome.out
    metadata = {entry.key: entry.value for entry in onnx.load(adder.folder / "out.onnx").metadata_props}
    assert metadata["eqfuse.trusted-rules"] == "own.egg"


@pytest.mark.conformance
def test_a_rule_that_is_left_out_is_not_checked(adder: CommandLine) -> None:
    assert adder.run("optimize", "in.onnx", "out.onnx", "--rules", "own.egg", "--skip", "made-up").code == 0


def test_a_rule_is_checked_once(adder: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(adder.folder / "kept"))
    adder.rule("own.egg", THRICE, RECORD_OF_THRICE)
    arguments = ("optimize", "in.onnx", "--rules", "own.egg", "-q")
    assert adder.run(*arguments).code == 0
    monkeypatch.delattr(check, "check_files")
    assert adder.run(*arguments).code == 0


def test_a_rule_that_does_not_make_its_example_is_not_used(adder: CommandLine) -> None:
    adder.rule("own.egg", THRICE, RECORD_OF_THRICE.replace("=> (Abs x)", "=> (Cos x)"))
    outcome = adder.run("optimize", "in.onnx", "--rules", "own.egg")
    assert outcome.code == 4
    assert "what stands on the right of its example is not what the rule makes" in outcome.error


def test_what_no_code_expects_names_the_rules(adder: CommandLine) -> None:
    """A Resize whose settings are none."""
    adder.rule("own.egg", OWN.replace("(Mul a b)", '(Resize a "nearest" "nonsense")'))
    outcome = adder.run("optimize", "in.onnx", "--rules", "own.egg", "--trust-rules")
    assert outcome.code == 4
    assert outcome.error.startswith("own.egg:7:1: rule made-up: what these make of the model cannot be used (")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf; nothing\r\n"])
def test_a_file_without_rules(adder: CommandLine, content: bytes) -> None:
    (adder.folder / "own.egg").write_bytes(content)
    outcome = adder.run("optimize", "in.onnx", "--rules", "own.egg")
    assert (outcome.code, outcome.error) == (4, "own.egg:1:1: the file has no rules")


def test_a_topic_that_no_rule_has(eqfuse: CommandLine) -> None:
    error = eqfuse.fail(2, "rules", "list", "--topic", "nosuch")
    assert error == "--topic nosuch: no rule has it; `eqfuse rules list` ends with all topics"
