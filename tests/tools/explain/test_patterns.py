"""Rules taken apart."""

from __future__ import annotations

from eqfuse.rules.loader import Rule, load_rules
from eqfuse.tools.explain.conditions import anchor
from eqfuse.tools.explain.patterns import Call, Hole, Literal, make_recorder, read_patterns
from eqfuse.tools.explain.session import Session
from eqfuse.tools.explain.signatures import read_signatures

CATALOGUE = load_rules(precision="fast")
TABLES = read_signatures(CATALOGUE.files)
WRITTEN = tuple(rule for rule in CATALOGUE.rules if not rule.derives)


def made_up(text: str) -> Rule:
    """A rule of this text; the rest of it is another one's."""
    fields = {name: getattr(WRITTEN[0], name) for name in WRITTEN[0].__dataclass_fields__}
    return Rule(**{**fields, "text": text, "name": "own"})


def test_both_sides_of_a_rewrite() -> None:
    text = (
        "(rewrite (Transpose (Exp x) (vec-of 1 0)) (Exp (Transpose x p)) :when ((= p (vec-of 1 0))) :ruleset explore)"
    )
    recorder = make_recorder(read_patterns(made_up(text))[0], "t", "r", TABLES)
    ((left, right),) = recorder.equations
    computed = Hole("computed.0")
    assert left == Call("Transpose", (Call("Exp", (Hole("x"),)), computed))
    assert right == Call("Exp", (Call("Transpose", (Hole("x"), Hole("p"))),))
    assert recorder.columns == {"x": "T", "computed.0": "Ints", "p": "Ints"}


def test_the_sides_of_a_rule_have_its_definitions_put_in() -> None:
    text = "(rule ((= e (Exp y)) (= y (Neg x))) ((let z (Exp x)) (union e (Div (Full (vec-empty) 1.0 t) z))))"
    ((left, right),) = make_recorder(read_patterns(made_up(text))[0], "t", "r", TABLES).equations
    one = Call("Full", (Hole("computed.0"), Literal(1.0), Hole("t")))
    assert left == Call("Exp", (Call("Neg", (Hole("x"),)),))
    assert right == Call("Div", (one, Call("Exp", (Hole("x"),))))


def test_the_conditions_of_a_pattern_outermost_first() -> None:
    text = (
        "(rewrite (Add (Mul a b) (Mul a c)) (Mul a (Add b c)) :ruleset explore"
        " :when ((= 2 (vec-length (shape a))) (nonneg c)))"
    )
    (one,) = anchor(read_patterns(made_up(text))[0], TABLES)
    shown = [(condition.kind, condition.shown) for condition in one.conditions]
    assert shown == [
        ("operator", "(Add (Mul a b) (Mul a c))"),
        ("operator", "(Mul a b)"),
        ("operator", "(Mul a c)"),
        ("argument", "a"),
        ("lookup", "(shape a)"),
        ("fact", "(= 2 (vec-length (shape a)))"),
        ("fact", "(nonneg c)"),
    ]


def test_what_computes_waits_for_what_it_needs() -> None:
    text = "(rule ((< k 3) (= e (Softmax x k))) ((union e x)))"
    (one,) = anchor(read_patterns(made_up(text))[0], TABLES)[:1]
    assert [condition.shown for condition in one.conditions] == ["(Softmax x k)", "(< k 3)"]


def test_every_shipped_rule_can_be_recorded_and_tried() -> None:
    programs = []
    for number, pattern in enumerate(p for rule in WRITTEN for p in read_patterns(rule)):
        programs.append(make_recorder(pattern, f"own.{number}", "own", TABLES).program)
        for one in anchor(pattern, TABLES):
            facts = " ".join(str(condition.fact) for condition in one.conditions)
            programs.append(f'(rule ({facts}) () :ruleset own :name "own.{number}.{one.root}")\n')
            assert one.sorts.keys() >= set().union(*(c.variables for c in one.conditions))
    with Session(60) as session:
        session.load(CATALOGUE.program + "(ruleset own)\n" + "".join(programs))
