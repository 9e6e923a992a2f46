"""Every file in pass/ is clean; every file in fail/ has exactly the problems that its first comment lists."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from eqfuse.errors import RuleError
from eqfuse.rules.lint import Problem, lint, lint_files, require_clean
from eqfuse.rules.loader import analysis_files, shipped_files

HERE = Path(__file__).parent
FAIL = sorted((HERE / "fail").glob("*.egg"))


def expected(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line[2:] for line in takewhile(lambda line: line.startswith(";"), lines)]


@pytest.mark.parametrize("path", sorted((HERE / "pass").glob("*.egg")), ids=lambda p: p.stem)
def test_clean(path: Path) -> None:
    assert lint(path) == []


@pytest.mark.parametrize("path", FAIL, ids=lambda p: p.stem)
def test_problems(path: Path) -> None:
    assert [f"{p.line}:{p.column}: {p.message}" for p in lint(path)] == expected(path)


def test_shipped_files_are_clean() -> None:
    problems = lint_files([file.path for file in (*analysis_files(), *shipped_files())])
    assert [str(problem) for problem in problems] == []


def test_text_is_checked_like_a_file() -> None:
    assert lint("(run 1)") == [
        Problem(Path("<text>"), 1, 1, "a rule file holds declarations and rules; run does not belong in it")
    ]


def test_a_problem_names_its_rule() -> None:
    assert [problem.rule for problem in lint(HERE / "fail" / "several.egg")] == ["test-a", "test-b"]


def test_names_are_unique_across_files() -> None:
    file = HERE / "pass" / "rewrite.egg"
    (problem,) = lint_files([file, file.read_text(encoding="utf-8")])
    assert problem.message == "the name test-relu-twice is taken by the rule at rewrite.egg:7"


def test_names_differ_from_the_shipped_ones() -> None:
    rule = next(rule for file in shipped_files() for rule in file.rules)
    written = rule.path.read_text(encoding="utf-8")
    assert any(f"the name {rule.name} is taken" in problem.message for problem in lint(written))


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
        lint(Path("nowhere.egg"))
