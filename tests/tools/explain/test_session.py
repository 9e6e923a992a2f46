"""Programs given to an e-graph in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from eqfuse.support.errors import EqfuseError
from eqfuse.tools.explain.messages import Refused
from eqfuse.tools.explain.session import OutOfTime, Session

FACTS = '(Add (Var "x") (Var "y"))\n'


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(30) as started:
        yield started


def test_rows_come_as_plain_data(session: Session) -> None:
    session.load("(relation both (i64 Ints))\n(both 7 (vec-of 1 2))\n" + FACTS)
    contents = session.read(("both",))
    (pair,) = contents.tables["both"]
    ((left, right, total),) = contents.constructors["Add"]
    assert pair[:2] == (7, (1, 2))
    assert dict(contents.constructors["Var"]) == {"x": left, "y": right}
    assert total not in (left, right)


def test_a_class_keeps_its_number(session: Session) -> None:
    session.load(FACTS)
    before = session.read().constructors["Add"]
    session.load('(Mul (Var "x") (Var "x"))')
    assert session.read().constructors["Add"] == before


def test_a_run_says_whether_it_changed_anything(session: Session) -> None:
    session.load('(ruleset own)\n(rewrite (Add a b) (Add b a) :ruleset own :name "swap")\n' + FACTS)
    assert (session.run("own"), session.run("own")) == (True, False)
    assert session.check('(= (Add (Var "x") (Var "y")) (Add (Var "y") (Var "x")))')


def test_a_check_that_fails(session: Session) -> None:
    assert not session.check('(= (Var "x") (Var "y"))')


def test_a_program_that_egglog_refuses(session: Session) -> None:
    with pytest.raises(Refused, match="Unbound"):
        session.load("(Nonsense 1)")
    assert session.read().constructors["Add"] == []


def test_a_panic_is_an_error_of_one_line(session: Session) -> None:
    with pytest.raises(EqfuseError, match="egglog ended") as raised:
        session.load("(relation r (Ints))\n(r (vec-remove (vec-empty) 3))")
    assert "\n" not in str(raised.value)


def test_the_limit_ends_a_run() -> None:
    endless = '(relation n (i64))\n(n 0)\n(ruleset own)\n(rule ((n i)) ((n (+ i 1))) :ruleset own :name "count")'
    with Session(60) as session:
        session.load(endless)
        session._deadline = time.monotonic() + 0.2
        with pytest.raises(OutOfTime) as raised:
            session.run("(saturate own)")
    assert raised.value.exit_code == 5
