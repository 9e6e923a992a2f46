"""``eqfuse rules explain``, ``why-not`` and ``stats``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ...driver.options import Options
from ...driver.rules.observe import (
    Attempt,
    Explanation,
    Instance,
    Line,
    RewrittenValue,
    Rule,
    RuleUse,
    ValueReport,
    Verdict,
    count_rule_uses,
    diagnose_rule,
    explain_value,
    find_variants,
    list_rewritten_values,
    observe_model,
)
from ...support import units
from ...support.errors import BUDGET_HIT
from .. import render
from ..options import options_of
from ..progress import Progress
from ..terminal import write


def _place(rule: Rule) -> str:
    return f"{rule.path}:{rule.line}"


# --- explain


def explain(arguments: argparse.Namespace) -> int:
    """The steps from the original to the optimised form of a value; without a value, those that have another form."""
    with Progress(arguments) as progress:
        run = observe_model(arguments.model, options_of(Options, arguments, verify=False), progress)
        if arguments.output is not None:
            progress("explain", arguments.output)
            report = explain_value(run, arguments.output)
    if arguments.output is None:
        _show_rewritten(arguments, list_rewritten_values(run))
    elif arguments.json:
        render.print_json(_report_as_dict(report))
    elif not arguments.quiet:
        _print_report(report)
    return 0


def _show_rewritten(arguments: argparse.Namespace, values: Sequence[RewrittenValue]) -> None:
    if arguments.json:
        render.print_json({"values": [asdict(value) for value in values]})
    elif not arguments.quiet:
        number = units.count_text(len(values), "value")
        title = f"{number} of {arguments.model} in another form; --output VALUE explains one"
        render.table(title, ("value", "made by", "now by"), [(v.name, v.before, v.after) for v in values], left=3)


def _print_report(report: ValueReport) -> None:
    explanation = report.explanation
    if explanation is None:
        write(f"{report.value} {report.reason}")
        if report.rewritten:
            write(f"rewritten on the way to it: {', '.join(report.rewritten)}")
        return
    write(f"{report.value}: {units.count_text(len(explanation.steps), 'step')}, checked by replay")
    for title, lines in (("before", explanation.before), ("after", explanation.after)):
        write(f"\n{title}")
        _print_lines(lines, "  ")
    write("\nsteps")
    for number, step in enumerate(explanation.steps, 1):
        turned = "" if step.forward else "   (read from right to left)"
        write(f"  {number}. {step.rule.base}: {step.rule.formula}{turned}   {_place(step.rule)}")
        write(f"        {step.before}")
        write(f"     => {step.after}")
        _print_lines(step.where, "        where ")
    for rule in explanation.rests_on:
        write(f"\nconditions of these steps rest on {rule.base}: {rule.formula}   {_place(rule)}")
    _print_operands(explanation)


def _print_lines(lines: Iterable[Line], indent: str) -> None:
    for line in lines:
        kind = f"{'constant ' if line.constant else ''}{line.type_text}"
        write(f"{indent}{line.name} = {line.text}   {kind}".rstrip())


def _print_operands(explanation: Explanation) -> None:
    """The full names of the values that the steps start from and the original form does not define."""
    defined = {line.name for line in explanation.before}
    rows = [(n.short, n.full, n.type_text) for n in explanation.names if n.short not in defined]
    if rows:
        write()
        render.table("over", ("", "in full", "type"), list(rows), left=3)


def _report_as_dict(report: ValueReport) -> dict[str, Any]:
    explanation = report.explanation
    if explanation is None:
        return {"value": report.value, "status": report.reason, "rewritten": report.rewritten}
    return {
        "value": report.value,
        "status": "explained",
        "before": [_line_as_dict(line) for line in explanation.before],
        "after": [_line_as_dict(line) for line in explanation.after],
        "steps": [_step_as_dict(step) for step in explanation.steps],
        "rests_on": [_rule_as_dict(rule) for rule in explanation.rests_on],
        "names": [{"short": n.short, "name": n.full, "type": n.type_text} for n in explanation.names],
    }


def _line_as_dict(line: Line) -> dict[str, Any]:
    return {"name": line.name, "text": line.text, "type": line.type_text, "constant": line.constant}


def _step_as_dict(step: Instance) -> dict[str, Any]:
    return {
        **_rule_as_dict(step.rule),
        "direction": "left to right" if step.forward else "right to left",
        "before": step.before,
        "after": step.after,
        "where": [_line_as_dict(line) for line in step.where],
    }


def _rule_as_dict(rule: Rule) -> dict[str, Any]:
    return {"rule": rule.base, "variant": rule.name, "formula": rule.formula, "file": _place(rule)}


# --- why-not


def why_not(arguments: argparse.Namespace) -> int:
    """How far a rule gets at a node, and whether its result was chosen; exit code 5 if time ran out."""
    options = options_of(Options, arguments, verify=False)
    candidates = find_variants(arguments.name, options)
    with Progress(arguments) as progress:
        run = observe_model(arguments.model, options, progress)
        progress("why-not", f"{arguments.name} at {arguments.node}")
        verdict = diagnose_rule(run, candidates, arguments.node)
    rule = candidates[0]
    if arguments.json:
        render.print_json(_verdict_as_dict(rule, arguments.node, verdict))
    elif not arguments.quiet:
        _print_verdict(rule, arguments.node, verdict)
    return BUDGET_HIT if verdict.diagnosis.after is None else 0


def _print_verdict(rule: Rule, node: str, verdict: Verdict) -> None:
    before, after = verdict.diagnosis.before, verdict.diagnosis.after
    write(f"{rule.base} at {node}: {rule.formula}   {_place(rule)}")
    first = _attempt_text(rule, before)
    last = _attempt_text(rule, after) if after else "not known, the time limit came first"
    if first == last:
        write(f"  in the model, and with all rules applied: {first}")
    else:
        write(f"  in the model: {first}")
        write(f"  with all rules applied: {last}")
    if verdict.outcome:
        write(f"  extraction: {_outcome_text(verdict)}")


def _attempt_text(rule: Rule, attempt: Attempt) -> str:
    variant = "" if attempt.pattern == rule.base else f" (as {attempt.pattern})"
    if attempt.matches:
        values = ", ".join(f"{name} = {value}" for name, value in attempt.values.items())
        return f"matches{variant}{', with ' if values else ''}{values}"
    return f"no match{variant}, {attempt.met} of {attempt.conditions} conditions hold; {attempt.failure}"


_OUTCOMES = {
    "chosen": "chosen, the result has the right side of the rule",
    "refined": "chosen, the result has the right side of the rule with parts of it in another form",
    "unused": "the result does not compute this value any more",
}


def _outcome_text(verdict: Verdict) -> str:
    if verdict.outcome != "rejected":
        return _OUTCOMES[verdict.outcome]
    if verdict.extra is None:
        return f"not chosen, the result has {verdict.instead} there; no graph can be written with the rule's right side"
    cost = units.seconds(verdict.extra) if verdict.unit == "s" else units.figure(verdict.extra, verdict.unit)
    comparison = f"would cost {cost} more" if verdict.extra else "costs the same"
    return f"not chosen, the result has {verdict.instead} there; the rule's right side {comparison}"


def _verdict_as_dict(rule: Rule, node: str, verdict: Verdict) -> dict[str, Any]:
    after = verdict.diagnosis.after
    return {
        **_rule_as_dict(rule),
        "node": node,
        "before": _attempt_as_dict(verdict.diagnosis.before),
        "after": _attempt_as_dict(after) if after else None,
        "outcome": verdict.outcome or None,
        "instead": verdict.instead or None,
        "extra_cost": verdict.extra,
        "unit": verdict.unit or None,
    }


def _attempt_as_dict(attempt: Attempt) -> dict[str, Any]:
    return {"matches": attempt.matches, **asdict(attempt)}


# --- stats


def stats(arguments: argparse.Namespace) -> int:
    """The matches of each rule in some models, and those of the rules of each topic and property together."""
    with Progress(arguments) as progress:
        uses = count_rule_uses(arguments.models, options_of(Options, arguments, verify=False), progress)
    if arguments.json:
        render.print_json({"models": arguments.models, "rules": [_use_as_dict(use) for use in uses]})
    elif not arguments.quiet:
        _print_stats(uses, len(arguments.models), unused=arguments.unused)
    return 0


def _print_stats(uses: Sequence[RuleUse], models: int, *, unused: bool) -> None:
    fired = sorted((u for u in uses if u.matches), key=lambda u: (-u.matches, u.rule.name))
    columns = ("rule", "topic", "models", "matches", "time")
    rows = [(u.rule.name, u.rule.topic, str(u.models), str(u.matches), units.rule_seconds(u.seconds)) for u in fired]
    render.table(f"rules that matched in {units.count_text(models, 'model')}", columns, list(rows), left=2)
    _print_totals("topic", uses, lambda use: (use.rule.topic,))
    _print_totals("property", uses, lambda use: use.rule.properties)
    idle = sorted((u for u in uses if not u.matches), key=lambda u: -u.seconds)
    if unused and idle:
        names = [(u.rule.name, u.rule.topic, units.rule_seconds(u.seconds)) for u in idle]
        render.table("rules that never matched", ("rule", "topic", "time"), list(names), left=2)
    hint = "" if unused else "; --unused lists them"
    write(f"{len(idle)} of {len(uses)} rules never matched ({units.rule_seconds(sum(u.seconds for u in idle))}){hint}")


def _print_totals(title: str, uses: Sequence[RuleUse], groups: Callable[[RuleUse], Iterable[str]]) -> None:
    rows = []
    for name in sorted({group for use in uses for group in groups(use)}):
        members = [use for use in uses if name in groups(use)]
        fired = sum(1 for use in members if use.matches)
        matches, seconds = sum(u.matches for u in members), sum(u.seconds for u in members)
        rows.append((name, str(len(members)), str(fired), str(matches), units.rule_seconds(seconds)))
    render.table(f"by {title}", (title, "rules", "matched", "matches", "time"), list(rows))


def _use_as_dict(use: RuleUse) -> dict[str, Any]:
    return {
        "rule": use.rule.name,
        "topic": use.rule.topic,
        "properties": use.rule.properties,
        "file": _place(use.rule),
        **{name: getattr(use, name) for name in ("matches", "models", "seconds")},
    }
