"""Which pairs follow from rules: all of them in one e-graph, each over leaves of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...rules.egglog_bindings import execute
from ...rules.sexpr import Atom, Node, substitute
from ..checking.drawing.conditions import Type
from ..checking.drawing.scratch import Scratch, is_of_egglog
from ..checking.drawing.terms import Leaf, facts, literal_text
from .guards import Guards
from .language import VARIABLES

_ANALYSE = "(saturate analysis)"
ROUNDS = 4
SCHEDULE = f"{_ANALYSE} (repeat {ROUNDS} (seq simplify explore {_ANALYSE}))"
CHUNK = 24
"""How many questions share one e-graph."""
_SAME = ((3, 4),) * 3
_DIFFERENT = ((3, 4), (2, 3, 4), (5, 2, 3, 4))
"""Leaves of a rule that does not ask for one shape: no rule that does may be of help."""


@dataclass(frozen=True)
class Question:
    """Whether two terms are equal, where leaves of one `dtype` are as `guards` say."""

    left: Node
    right: Node
    guards: Guards
    dtype: str

    def leaves(self) -> dict[str, Leaf]:
        """The leaf for each variable."""
        shapes = _SAME if self.guards.same_shape else _DIFFERENT
        return {
            name: Leaf("Var", name, Type(shape, self.dtype), name in self.guards.nonneg, name in self.guards.nonzero)
            for name, shape in zip(VARIABLES, shapes, strict=True)
        }


class Deriver:
    """An e-graph with `declarations` (and the rules among them), for questions under further rules."""

    def __init__(self, declarations: str) -> None:
        self.declarations = declarations
        self.scratch = Scratch(declarations)

    def derive(self, rules: str, questions: Sequence[Question]) -> list[bool]:
        """For each question whether the rules prove it within `ROUNDS` rounds."""
        answers: list[bool] = []
        for start in range(0, len(questions), CHUNK):
            answers += self._chunk(rules, questions[start : start + CHUNK])
        return answers

    def _chunk(self, rules: str, questions: Sequence[Question]) -> list[bool]:
        try:
            return self._ask(rules, questions)
        except BaseException as error:
            if not is_of_egglog(error):
                raise
            self.scratch = Scratch(self.declarations)
            if len(questions) == 1:
                return [False]
            return [self._chunk(rules, [question])[0] for question in questions]

    def _ask(self, rules: str, questions: Sequence[Question]) -> list[bool]:
        egraph = self.scratch.egraph
        execute(egraph, "(push 1)")
        execute(egraph, rules)
        for number, question in enumerate(questions):
            execute(egraph, _state(number, question))
        execute(egraph, f"(run-schedule {SCHEDULE})")
        rows = egraph.freeze().functions["root"].rows
        roots = {egraph.value_to_i64(row.inputs[0]): row.output for row in rows}
        execute(egraph, "(pop 1)")
        return [roots[2 * i] == roots[2 * i + 1] for i in range(len(questions))]


def _state(number: int, question: Question) -> str:
    prefix = f"{number}."
    leaves = question.leaves()
    texts = {name: f'(Var "{prefix}{name}")' for name in VARIABLES}
    texts |= {"axes": literal_text((1,)), "k": "1", "v": "3.0", "t": f'"{question.dtype}"'}
    values = {name: Atom(text) for name, text in texts.items()}
    lines = [fact for leaf in leaves.values() for fact in facts(leaf, prefix)]
    for side, term in enumerate((question.left, question.right)):
        lines.append(f"(union (root {2 * number + side}) {substitute(term, values)})")
    return "\n".join(lines)
