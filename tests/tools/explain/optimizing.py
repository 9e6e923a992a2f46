"""Small models, optimised under a few rules of a test's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper

from eqfuse.driver.options import Options
from eqfuse.driver.rules.observe import Observation, explain_value, observe_model
from eqfuse.tools.explain.explanation import Explanation

from ...engine.models import model as build
from ...engine.models import value

RECORD = """
; made for a test
; @property strength
; @sound real
; @example (Exp x) => (Exp x)
"""


def rule(text: str, name: str, ruleset: str = "explore", commutes: str = "") -> str:
    """A rule with a record: `text` without its options' closing parenthesis."""
    record = f"{RECORD}; @commutes {commutes}\n" if commutes else RECORD
    return f'{record}({text} :ruleset {ruleset} :name "{name}")\n'


def node(op: str, *inputs: str, to: str, **attributes: object) -> onnx.NodeProto:
    """A node of one output that is named like it."""
    return helper.make_node(op, list(inputs), [to], name=f"node_{to}", **attributes)


def model(
    folder: Path, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",),
    shape: Sequence[int | str] = (2, 3), **weights: ArrayLike,
) -> Path:  # fmt: skip
    """A model from `x` to `outputs`."""
    stored = {name: np.asarray(weight, np.float32) for name, weight in weights.items()}
    path = folder / "model.onnx"
    onnx.save(build(nodes, [value("x", shape)], outputs, stored), path)
    return path


def run(path: Path, *rules: str) -> Observation:
    """Optimise under the rules, and no others."""
    own = path.with_name("own.egg")
    own.write_text("".join(rules), encoding="utf-8")
    return observe_model(path, Options(rules=(own,), only=("own",), cost="flops", verify=False, time_limit=300.0))


def explain_rewritten(result: Observation, value: str) -> Explanation:
    """The explanation of a value that was rewritten."""
    explanation = explain_value(result, value).explanation
    assert explanation is not None
    return explanation


def steps(explanation: Explanation) -> list[tuple[str, str, str]]:
    """Rule, before and after of each step."""
    return [(step.rule.name, step.before, step.after) for step in explanation.steps]


def lines(explanation: Explanation) -> list[str]:
    """The optimised form as text."""
    return [f"{line.name} = {line.text}" for line in explanation.after]
