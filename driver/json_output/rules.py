"""What `--json` prints of commands about rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from ..rules.catalogue import OperatorAttribute, OperatorOperand
from ..rules.observe import RewrittenValue
from .head import Printed


class RuleFields(TypedDict):
    """The record of a rule; `file` is a path and a line."""

    name: str
    topic: str
    ruleset: str
    formula: str
    properties: Sequence[str]
    sound: str
    requires: Any
    source: str
    example: str
    file: str
    text: str


class RulesOutput(Printed):
    """`rules list`."""

    rules: Sequence[RuleFields]


class RuleSides(TypedDict):
    """The example of a rule as ONNX, as text."""

    before: str
    after: str


class RuleOutput(Printed, RuleFields):
    """`rules show`."""

    onnx: RuleSides | None


class OperatorRow(TypedDict):
    """An operator of rules; `term` has the names of its arguments."""

    name: str
    domain: str
    term: str


class OperatorsOutput(Printed):
    """`rules operators`."""

    operators: Sequence[OperatorRow]


class OperatorOutput(Printed):
    """`rules operators NAME`."""

    name: str
    domain: str
    category: str
    term: str
    sort: str
    operands: Sequence[OperatorOperand]
    attributes: Sequence[OperatorAttribute]
    outputs: int
    is_chain: bool
    facts: Sequence[str]
    read_by: int
    made_by: int


class CounterexampleFields(TypedDict):
    """Where the sides of a refuted rule differ."""

    term: str
    made: str
    elements: Mapping[str, Any]
    position: Any
    left: Any
    right: Any


class VerdictFields(TypedDict):
    """The verdict on a rule, and the samples that it rests on."""

    name: str
    file: str
    properties: Sequence[str]
    sound: str
    verdict: str
    scope: str
    condition: str
    samples: int
    settings: int
    fires_on_example: bool | None
    reason: str
    remark: str
    uncovered: Sequence[str]
    counterexample: CounterexampleFields | None


class OverlapFields(TypedDict):
    """Two rules that match the same terms."""

    rule: str
    other: str
    same_result: bool


class VerdictsOutput(Printed):
    """`rules check`; `properties` counts verdicts."""

    rules: Sequence[VerdictFields]
    properties: Mapping[str, Mapping[str, int]]
    overlaps: Sequence[OverlapFields]


class ProblemFields(TypedDict):
    """A fault in the text of a rule file."""

    path: str
    line: int
    column: int
    message: str
    rule: str


class ProblemsOutput(Printed):
    """`rules check` of files that cannot be read."""

    problems: Sequence[ProblemFields]


class DiscoveredFields(TypedDict):
    """A rule that was found; `left_out` says why it is written as a comment."""

    name: str
    formula: str
    properties: Sequence[str]
    sound: str
    requires: Any
    verdict: str
    scope: str
    samples: int
    left_out: str | None
    text: str


class DiscoverOutput(Printed):
    """`rules discover`, with the numbers of terms and of equal pairs that were looked at."""

    operators: Sequence[str]
    size: int
    catalogue: bool
    output: str | None
    terms: int
    pairs: int
    derived: int
    refuted: int
    commuting: Sequence[str]
    rules: Sequence[DiscoveredFields]


class RewrittenOutput(Printed):
    """`rules explain`: the values that have another form."""

    values: Sequence[RewrittenValue]


class RuleReference(TypedDict):
    """A rule that a step, or a condition, comes from."""

    rule: str
    variant: str
    formula: str
    file: str


class LineFields(TypedDict):
    """A line of a form: a value, and how it is computed."""

    name: str
    text: str
    type: str
    constant: bool


class StepFields(RuleReference):
    """A step from one form to the next."""

    direction: str
    before: str
    after: str
    where: Sequence[LineFields]


class NameFields(TypedDict):
    """A name that the steps shorten."""

    short: str
    name: str
    type: str


class ExplanationOutput(Printed):
    """`rules explain --output VALUE`; without steps `status` says why."""

    value: str
    status: str
    rewritten: NotRequired[Sequence[str]]
    before: NotRequired[Sequence[LineFields]]
    after: NotRequired[Sequence[LineFields]]
    steps: NotRequired[Sequence[StepFields]]
    rests_on: NotRequired[Sequence[RuleReference]]
    names: NotRequired[Sequence[NameFields]]


class AttemptFields(TypedDict):
    """How many conditions of a rule hold, and why the next does not."""

    matches: bool
    pattern: str
    met: int
    conditions: int
    failure: str
    values: Mapping[str, str]


class WhyNotOutput(Printed, RuleReference):
    """`rules why-not`."""

    node: str
    before: AttemptFields
    after: AttemptFields | None
    outcome: str | None
    instead: str | None
    extra_cost: float | str | None
    unit: str | None


class UseFields(TypedDict):
    """How often a rule matched, in how many models."""

    rule: str
    topic: str
    properties: Sequence[str]
    file: str
    matches: int
    models: int
    seconds: float


class StatsOutput(Printed):
    """`rules stats`."""

    models: Sequence[str]
    rules: Sequence[UseFields]


class GuiltyRule(TypedDict):
    """A rule that a failure needs."""

    name: str
    file: str
    text: str


class BisectOutput(Printed):
    """`bisect`; `failure` is null, and no rule is named, if the run passes."""

    rules: Sequence[GuiltyRule]
    helpers: Sequence[GuiltyRule]
    failure: str | None
    runs: int | None
