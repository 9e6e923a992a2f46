"""Programs of rules that are kept between runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.rules import loader
from eqfuse.rules.loader import load_rules, prelude
from eqfuse.rules.program import rule_program
from eqfuse.rules.sexpr import read
from eqfuse.rules.vocabulary import RuleSelection
from eqfuse.support.errors import RuleError

RULE = """; x + 0 = x
; @property identity
; @sound exact
(rewrite (Add x (Full s 0.0 d)) x :when ((= (shape x) t)) :ruleset simplify :name "own")
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_kept_program_is_that_of_the_loader(cache: Path) -> None:
    expected = f"{prelude()}\n{load_rules(precision='exact', skip=['pad']).program}"
    first, second = (rule_program(RuleSelection(precision="exact", skip=("pad",))) for _ in range(2))
    assert first == second
    assert list(map(str, read(first.text).forms)) == list(map(str, read(expected).forms))
    assert len(list((cache / "eqfuse/programs").iterdir())) == 1


def test_a_kept_program_needs_no_rule_file(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = rule_program(RuleSelection())
    monkeypatch.setattr(loader, "load_rules", None)
    assert rule_program(RuleSelection()) == kept


def test_a_file_that_changes_makes_another_program(tmp_path: Path) -> None:
    path = tmp_path / "own.egg"
    path.write_text(RULE, encoding="utf-8")
    assert '"own"' in rule_program(RuleSelection((path,))).text
    path.write_text(RULE.replace("own", "another"), encoding="utf-8")
    assert '"another"' in rule_program(RuleSelection((tmp_path,))).text


def test_a_file_in_another_folder_makes_the_same_program(tmp_path: Path, cache: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        (folder / "own.egg").write_text(RULE, encoding="utf-8")
        assert '"own"' in rule_program(RuleSelection((folder / "own.egg",))).text
    assert len(list(cache.rglob("programs/*"))) == 2  # and that of the shipped rules


def test_the_program_of_a_file_is_that_of_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "own.egg"
    path.write_text(f"(relation mine (T))\n{RULE}", encoding="utf-8")
    for only in ((), ("own",)):
        expected = f"{prelude()}\n{load_rules([path], only=only).program}"
        found = rule_program(RuleSelection((path,), only=only)).text
        assert sorted(map(str, read(found).forms)) == sorted(map(str, read(expected).forms))


def test_a_file_with_problems_keeps_none(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "own.egg"
    path.write_text("(rewrite", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(RuleError):
            rule_program(RuleSelection((path,)))
    assert not list(cache.rglob("programs/*"))
