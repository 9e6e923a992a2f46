"""What `--json` prints, by command: the fields and their types, from which the JSON schema is made.

A field of type `NotRequired` is absent where it has no meaning. Figures that are not finite are texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...support.version import JSON_SCHEMA
from . import head, models, rules

OUTPUTS: Mapping[str, tuple[Any, ...]] = {
    "optimize": (models.OptimizeOutput,),
    "compile": (models.CompileOutput,),
    "tune": (models.CompileOutput,),
    "run": (models.RunOutput,),
    "bench": (
        models.LatencyOutput,
        models.ThroughputOutput,
        models.KernelsOutput,
        models.EmulationOutput,
        models.SimulationOutput,
        models.EstimationOutput,
    ),
    "report": (models.ReportOutput,),
    "verify": (models.VerifyOutput,),
    "inspect": (models.InspectOutput, models.InspectSeveralOutput),
    "diff": (models.DiffOutput,),
    "extract": (models.ExtractOutput,),
    "reduce": (models.ReduceOutput,),
    "bisect": (rules.BisectOutput,),
    "rules list": (rules.RulesOutput,),
    "rules show": (rules.RuleOutput,),
    "rules operators": (rules.OperatorsOutput, rules.OperatorOutput),
    "rules check": (rules.VerdictsOutput, rules.ProblemsOutput),
    "rules discover": (rules.DiscoverOutput,),
    "rules explain": (rules.RewrittenOutput, rules.ExplanationOutput),
    "rules why-not": (rules.WhyNotOutput,),
    "rules stats": (rules.StatsOutput,),
    "profile list": (models.MeasurementsOutput,),
    "profile export": (models.ExportOutput,),
    "profile import": (models.ImportOutput,),
    "profile clear": (models.ClearOutput,),
    "device list": (models.DevicesOutput,),
    "device show": (models.DeviceOutput,),
    "device detect": (models.DeviceOutput,),
    "device measure": (models.DeviceOutput,),
}
"""The forms of each command's object, beside that of an error."""


def schema_of(command: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the output of a command, an error among it."""
    forms, components = msgspec.json.schema_components((*OUTPUTS[command], head.ErrorOutput))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"eqfuse {command} --json, version {JSON_SCHEMA}",
        "anyOf": list(forms),
        "$defs": components,
    }
