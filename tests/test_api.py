"""The Python API: an error of a call is one line, and results can be looked at."""

from __future__ import annotations

import argparse
import inspect
import pydoc
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import helper

import eqfuse
from eqfuse.cli.parser import build_parser
from eqfuse.driver.compiler.accelerator import AcceleratorOptions
from eqfuse.driver.options import BenchOptions, InspectOptions, MeasureOptions, Options, PricingOptions, VerifyOptions
from eqfuse.engine.choices import CostName, Extraction, PartitionMethod
from eqfuse.rules.vocabulary import Precision
from eqfuse.support.errors import EqfuseError

from .engine.models import model, value


def layers(count: int) -> onnx.ModelProto:
    """A chain of pairs of Relu and Add."""
    nodes = []
    for number in range(count):
        nodes.append(helper.make_node("Relu", [f"h{number}"], [f"r{number}"]))
        nodes.append(helper.make_node("Add", [f"r{number}", "w"], [f"h{number + 1}"]))
    ends = [value("h0", [2, 3])], [value(f"h{count}", [2, 3])]
    return model(nodes, *ends, {"w": np.ones((1, 3), np.float32)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bogus"}, "precision: 'bogus' is not one of exact, real, fast"),
        ({"partition": "bogus"}, "partition: 'bogus' is not one of joint, ago, dnnfusion, fuseops, none"),
        ({"cost": "bogus"}, "cost: 'bogus' is not one of roofline, flops, profile"),
        ({"extraction": "bogus"}, "extraction: 'bogus' is not one of exact, greedy"),
        ({"precission": "real"}, "precission: is no option; did you mean precision?"),
        ({"time_limit": 0}, "time_limit: 0 is not a number above 0"),
        ({"certify": True}, "certify: is about sub-graphs, and partition is none"),
        ({"partition": "joint", "cost": "flops"}, "partition: joint minimises time; it cannot be had with cost flops"),
        ({"opset": 999}, "opset: 999 is not known here; the newest is"),
        ({"device": "bogus"}, "device 'bogus': not found"),
        ({"runtime": "bogus"}, "runtime: 'bogus' is not one of onnxruntime, onnxruntime-1.22, none"),
        ({"measure": 0}, "measure: 0 is not a number above 0"),
        ({"threads": 2}, "threads: is for measure, which was not asked for"),
        ({"measure": 1, "partition": "ago"}, "measure: times whole graphs, and a partition was asked for"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EqfuseError) as refused:
        eqfuse.optimize(layers(1), **options)
    assert str(refused.value).startswith(message)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"tuning": {"trails": 3}}, "trails: is no option; did you mean trials?"),
        ({"tuning": {}}, "trials: has to be given"),
        ({"tuning": {"trials": "many"}}, "trials: 'many' is not a whole number"),
        ({"target": "dsa-goya", "accelerator": {"order": "bogus"}}, "order: 'bogus' is not one of better, bfs, dfs"),
        ({"target": "dsa-goya", "domains": "com.microsoft"}, "domains: a program for an accelerator has operators"),
        ({"target": "dsa-goya", "accelerator": {"batches": 2}}, "batches: is no option; did you mean batch?"),
        ({"partition": "bogus"}, "partition: 'bogus' is not one of"),
    ],
)
def test_options_of_compile_that_cannot_be_used(tmp_path: Path, call: dict[str, Any], message: str) -> None:
    with pytest.raises(EqfuseError) as refused:
        eqfuse.compile(layers(1), tmp_path / "bundle", **call)
    assert str(refused.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_is_said() -> None:
    with pytest.raises(EqfuseError, match=r"^a model is a path, .*, not int$"):
        eqfuse.optimize(3)  # type: ignore[call-overload]


def test_one_rule_file_need_be_no_sequence() -> None:
    with pytest.raises(EqfuseError, match=r"^my\.egg: cannot be read: No such file"):
        eqfuse.optimize(layers(1), rules="my.egg")


def test_a_result_is_shown_in_a_few_lines() -> None:
    """However large the model is."""
    small, large = (eqfuse.optimize_with_result(layers(count), verify=False) for count in (1, 60))
    for shown in (repr(large), repr(large.original), repr(large.extraction), repr(large.saturation)):
        assert len(shown) < 400
    assert repr(large).count("\n") == repr(small).count("\n") == 3
    assert repr(large).startswith("<Result: 120 -> ")


def test_a_verification_is_shown_in_one_line() -> None:
    shown = repr(eqfuse.optimize_with_result(layers(1)).verification)
    assert shown.startswith("<Verification: passed, 1 output(s), ")
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("option", "names"),
    [("precision", Precision), ("cost", CostName), ("extraction", Extraction), ("partition", PartitionMethod)],
)
def test_the_command_line_offers_what_the_api_takes(option: str, names: Any) -> None:
    for name in get_args(names):
        arguments = build_parser().parse_args(["optimize", "in.onnx", f"--{option}", name])
        assert getattr(eqfuse.Options(**{option: getattr(arguments, option)}), option) == name


@pytest.mark.parametrize(("options", "device"), [({}, "x86-64-v4"), ({"cost": "profile"}, "host")])
def test_prices_are_for_a_named_class_unless_they_were_measured_here(options: dict[str, str], device: str) -> None:
    assert eqfuse.Options(**options).device == device
    assert eqfuse.Options(**options, device="arm64").device == "arm64"


def test_the_package_lists_its_api_before_it_is_loaded() -> None:
    assert {"optimize", "compile", "load", *OPTIONS, "EqfuseError"} <= set(dir(eqfuse))


OPTIONS: dict[str, tuple[type[Any], ...]] = {
    "optimize": (Options, MeasureOptions),
    "compile": (Options,),
    "verify": (VerifyOptions,),
    "inspect": (InspectOptions,),
    "diff": (PricingOptions,),
    "bench": (BenchOptions,),
}
"""The classes of the options that each function takes as keywords."""
OTHERS = {
    "optimize": {"observer"},
    "compile": {"batch", "observer", "target", "threads", "measure", "format", "prefix", "accelerator", "tuning"},
}
"""The keywords that are no options of these classes."""
WITHOUT_FLAG = {
    "optimize": {"observer", "intensive"},
    "compile": {
        "observer", "accelerator", "tuning", "device", "runtime", "as_functions", "certify", "certificate",
    },
}
"""The keywords that a command has no flag for: on the command line the device is the target, and the fields of
`accelerator` and `tuning` are flags of their own."""
WITHOUT_KEYWORD = {"optimize": {"out", "report"}}


def keywords(name: str) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a function of the API."""
    parameters = inspect.signature(getattr(eqfuse, name)).parameters
    return {key: each for key, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}


def flags(command: str) -> set[str]:
    """The destinations of a command's arguments, without those of every command, the models and the file to write."""
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    common = {"help", "verbose", "quiet", "json", "output"}
    positional = {"optimize": {"model"}, "compile": {"model"}, "bench": {"bundle"}, "inspect": {"model"}}
    models = positional.get(command, {"model", "candidate"})
    return {a.dest for a in commands.choices[command]._actions} - common - models


@pytest.mark.parametrize("name", OPTIONS)
def test_a_signature_has_the_fields_of_its_options_with_their_defaults(name: str) -> None:
    given = keywords(name)
    options = [field for kind in OPTIONS[name] for field in fields(kind)]
    assert set(given) == {field.name for field in options} | OTHERS.get(name, set())
    for field in options:
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        expected = "joint" if (name, field.name) == ("compile", "partition") else default
        assert given[field.name].default == expected, field.name


@pytest.mark.parametrize("name", OPTIONS)
def test_a_command_has_the_keywords_of_its_function(name: str) -> None:
    fields_of_groups = {"trials", "tuning_limit", "no_reformer", "runner", "tracker", "device_key", "cluster"} | {
        field.name for field in fields(AcceleratorOptions)
    }
    others = WITHOUT_KEYWORD.get(name, set()) | (fields_of_groups - {"batch"} if name == "compile" else set())
    assert flags(name) - others == set(keywords(name)) - WITHOUT_FLAG.get(name, set())


def test_help_shows_every_function_with_its_options() -> None:
    text = pydoc.plain(pydoc.render_doc(eqfuse))
    for name in OPTIONS:
        assert f"\n    {name}(" in text
    assert "precision: 'Precision' = 'real'" in text


def test_importing_the_package_loads_none_of_it() -> None:
    heavy = ("onnx", "onnx_ir", "numpy", "scipy", "onnxruntime", "tvm", "eqfuse.api")
    script = f"import sys, eqfuse; dir(eqfuse); print(*set({heavy}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_model_is_inspected_compared_and_verified() -> None:
    model = layers(2)
    assert eqfuse.inspect(model).inputs == {"h0": "float[2, 3]"}
    assert eqfuse.inspect(model, partition="ago").partition is not None
    assert eqfuse.diff(model, layers(1)).after.layers == 2
    assert eqfuse.verify(model, model, seed=3).status == "passed"
    assert eqfuse.verify(model, layers(1)).status == "failed"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eqfuse.verify(layers(1), layers(1), atoll=1), "atoll: is no option; did you mean atol?"),  # type: ignore[call-arg]
        (lambda: eqfuse.inspect(layers(1), cost="bogus"), "cost: 'bogus' is not one of"),
        (lambda: eqfuse.bench("gone", repeat=0), "repeat: 0 is not a number above 0"),
        (lambda: eqfuse.bench("gone"), "gone: no such folder"),
    ],
)
def test_other_functions_say_what_is_wrong_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(EqfuseError) as refused:
        call()
    assert str(refused.value).startswith(message)
