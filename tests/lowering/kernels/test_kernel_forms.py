"""Forms of kernels, scheduled and compiled, compute what ONNX Runtime computes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from eqfuse.benchmarks.forms.compiled_form import compile_form, draw_inputs, in_onnx_runtime, largest_difference
from eqfuse.benchmarks.forms.free_forms import FreeForm, list_free_forms
from eqfuse.benchmarks.forms.kernel_forms import Form, list_forms
from eqfuse.benchmarks.forms.recurrent_forms import list_recurrences
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.schedules import Scheduled

TOLERANCE = 1e-4
"""Of the largest element of an output: sums in another order, by Winograd's filters, too."""
FORMS = {form.name: form for form in list_forms()}


def check(form: Form) -> list[Scheduled]:
    """Compare a form with ONNX Runtime; the schedules of its kernels, none if its parts do not fit each other."""
    model = form.model()
    if model is None:
        return []
    feeds = draw_inputs(model)
    _, expected = in_onnx_runtime(model, feeds)
    assert all(array.std() > 0 for array in expected.values())
    kernels = compile_form(model, form.ahead, target_of("host", 1))
    assert largest_difference(kernels.bind(feeds).results(), expected) < TOLERANCE, form.name
    return [scheduled for _, scheduled in kernels.built.values()]


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    "name",
    [
        "conv 3x3 > and relu",
        "depthwise 3x3 > and relu",
        pytest.param("conv1d grouped even > cut rows", marks=pytest.mark.conformance),
        "transposed1d /2 > cut channels",
        "conv1d depthwise > cut rows",
        "join > average 2x2 /2",
        "product of pages > exchange",
    ],
)
def test_forms_that_were_wrong(name: str) -> None:
    check(FORMS[name])


@pytest.mark.parametrize("name", ["mean of images", "mean of a batch"])
def test_a_mean_over_axes_of_one_element_or_apart_is_by_rows(name: str) -> None:
    assert [scheduled.rule for scheduled in check(FORMS[name])] == ["rows"]


@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", ["product of pages > masked", "product > compared", "layer norm > compared"])
def test_booleans_keep_no_loop_from_vectors(name: str) -> None:
    schedules = check(FORMS[name])
    assert schedules
    assert all("vectorized" in scheduled.schedule.mod.script() for scheduled in schedules)
    assert "fallback" not in [scheduled.rule for scheduled in schedules]


@pytest.mark.conformance
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FORMS)))
def test_any_form(name: str) -> None:
    check(FORMS[name])


RECURRENT = {form.name: form for form in list_recurrences()}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", RECURRENT)
def test_forms_of_recurrent_networks(name: str) -> None:
    check(RECURRENT[name])


FREE = {form.name: form for form in list_free_forms()}
EXTENTS = st.sampled_from((1, 2, 5, 15, 16, 17, 33, 63, 64, 65, 130))
"""Rows that are shorter than a vector or as long, and than several; and those of one element less and more."""


def check_free(form: FreeForm, data: st.DataObject, examples: int) -> None:
    model = form.model()
    if model is None:
        return
    kernels = compile_form(model, form.form.ahead, target_of("host", 1), form.sizes["typical"])
    for _ in range(examples):
        sizes = {name: data.draw(EXTENTS if name != "N" else st.integers(1, 3)) for name in form.sizes["typical"]}
        fixed = form.at(sizes)
        if fixed is not None:
            feeds = draw_inputs(fixed)
            try:
                _, expected = in_onnx_runtime(model, feeds)
            except InvalidArgument:  # a map that is smaller than a window, of which ONNX infers an element
                continue
            except Fail as error:
                if "while running" not in str(error):
                    raise
                continue  # the same, found out in the run
            if not all(array.size for array in expected.values()):
                continue
            assert largest_difference(kernels.bind(feeds, sizes).results(), expected) < TOLERANCE, (form.name, sizes)


@pytest.mark.parametrize(
    "name",
    [
        "free softmax",
        "free mean of maps",
        pytest.param("free instance norm", marks=pytest.mark.conformance),
        pytest.param("free sum of last > gelu", marks=pytest.mark.conformance),
        pytest.param("free join > instance norm > cut channels", marks=pytest.mark.conformance),
    ],
)
@settings(max_examples=1, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_rows_of_any_length(name: str, data: st.DataObject) -> None:
    check_free(FREE[name], data, 8)


@pytest.mark.conformance
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FREE)), st.data())
def test_any_form_of_any_size(name: str, data: st.DataObject) -> None:
    check_free(FREE[name], data, 5)
