"""Every file in pass/ is clean; every file in fail/ has exactly the problems that its first comment lists."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from eqfuse.rules.lint import Problem, lint_files, require_clean
from eqfuse.rules.places import analysis_files, shipped_files
from eqfuse.rules.records import read_file
from eqfuse.support.errors import RuleError

HERE = Path(__file__).parent
FAIL = sorted((HERE / "fail").glob("*.egg"))


def expected(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line[2:] for line in takewhile(lambda line: line.startswith(";"), lines)]


@pytest.mark.parametrize("path", sorted((HERE / "pass").glob("*.egg")), ids=lambda p: p.stem)
def test_clean(path: Path) -> None:
    assert lint_files([path]) == []


@pytest.mark.parametrize("path", FAIL, ids=lambda p: p.stem)
def test_problems(path: Path) -> None:
    assert [f"{p.line}:{p.column}: {p.message}" for p in lint_files([path])] == expected(path)


def test_shipped_files_are_clean() -> None:
    problems = lint_files([file.path for file in (*analysis_files(), *shipped_files())])
    assert [str(problem) for problem in problems] == []


def test_text_is_checked_like_a_file() -> None:
    assert lint_files(["(run 1)"]) == [
        Problem(Path("<text>"), 1, 1, "a rule file holds declarations and rules; run does not belong in it")
    ]


def test_a_problem_names_its_rule() -> None:
    assert [problem.rule for problem in lint_files([HERE / "fail" / "several.egg"])] == ["test-a", "test-b"]


def test_names_are_unique_across_files() -> None:
    file = HERE / "pass" / "rewrite.egg"
    (problem,) = lint_files([file, file.read_text(encoding="utf-8")])
    assert problem.message == "the name test-relu-twice is taken by the rule at rewrite.egg:5"


def test_names_differ_from_the_shipped_ones() -> None:
    rule = next(rule for file in shipped_files() for rule in file.rules)
    written = rule.path.read_text(encoding="utf-8")
    assert any(f"the name {rule.name} is taken" in problem.message for problem in lint_files([written]))


def test_a_file_may_use_what_another_declares() -> None:
    declaration, use = "(relation flat (T))", '(rule ((nonneg x)) ((flat x)) :ruleset analysis :name "test-flat")'
    assert lint_files([use, declaration]) == []


def test_loading_reports_the_first_problem_and_counts_the_others() -> None:
    path = HERE / "fail" / "several.egg"
    message = f"{path}:{expected(path)[0]} (and 1 more)"
    with pytest.raises(RuleError) as caught:
        require_clean([path])
    assert str(caught.value) == message


def test_a_missing_file() -> None:
    with pytest.raises(RuleError, match=r"nowhere\.egg: cannot be read: No such file"):
        lint_files([Path("nowhere.egg")])


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_has_no_rules(text: str, tmp_path: Path) -> None:
    path = tmp_path / "own.egg"
    path.write_text(text, encoding="utf-8")
    assert [str(problem) for problem in lint_files([path])] == [f"{path}:1:1: the file has no rules"]


@pytest.mark.parametrize(("mark", "end"), [("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_files_of_other_editors_are_read_alike(mark: str, end: str, tmp_path: Path) -> None:
    """With a byte-order mark, and with the line ends of Windows."""
    plain = (HERE / "pass" / "when.egg").read_text(encoding="utf-8")
    path = tmp_path / "when.egg"
    path.write_bytes((mark + plain.replace("\n", end)).encode())
    assert lint_files([path]) == []
    other, unixlike = (read_file(p).rules[0] for p in (path, HERE / "pass" / "when.egg"))
    assert (other.text, other.example, other.line) == (unixlike.text, unixlike.example, unixlike.line)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "own.egg"
    path.write_bytes(b"; \xff\xfe\x00")
    with pytest.raises(RuleError, match=r"own\.egg: is no rule file: byte 2 is not UTF-8 text$"):
        lint_files([path])


def test_an_author_knows_the_facts_of_an_own_operator() -> None:
    facts = '((= e (Out (Op "com.example.Swish" (Cons x (Nil))) 0)) (= s (shape x)))'
    assert lint_files([f'(rule {facts} ((set (shape e) s)) :ruleset analysis :name "test-shape")']) == []


def test_own_tables_may_be_filled_with_numbers() -> None:
    assert lint_files(["(relation swaps (i64 i64))\n(swaps 0 1)"]) == []
