"""Loop and Scan for float64 runs: onnx's evaluator joins rows that a Loop collects as matrices, lets outer names hide
those of a body, never runs a Loop without a condition, and knows no direction or axis of a Scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from ..runs.values import Value

Names = Mapping[str, Value]


class _Iterated(OpRun):
    """An operator with a body that runs again and again."""

    op_domain = ""
    body: Any

    def need_context(self) -> bool:
        """A body reads names of the graph around it."""
        return True

    def _run_once(self, values: Sequence[Value], context: Names | None, attributes: Names | None) -> list[Value]:
        """The outputs of the body: its own inputs hide outer values of the same name."""
        named = dict(zip(self.body.input_names, values, strict=False))
        outputs: list[Value] = self.body.run(None, {**(context or {}), **named}, attributes=attributes)
        return outputs


class Loop(_Iterated):
    """Loop: the rows that it collects are stacked along a new first axis."""

    def _run(
        self, trips: Any, condition: Any, *states: Value, context: Names | None = None, attributes: Names | None = None,
        **_: Any,
    ) -> tuple[Value, ...]:  # fmt: skip
        current = list(states)
        collected: list[list[Value]] = [[] for _ in self.body.output_names[1 + len(states) :]]
        goes_on = condition is None or bool(np.asarray(condition).all())
        turn = 0
        while goes_on and (trips is None or turn < int(np.asarray(trips).reshape(()))):
            outputs = self._run_once([np.asarray(turn, np.int64), np.asarray(True), *current], context, attributes)
            goes_on = bool(np.asarray(outputs[0]).all())
            current = outputs[1 : 1 + len(current)]
            for rows, row in zip(collected, outputs[1 + len(current) :], strict=True):
                rows.append(row)
            turn += 1
        if collected and not turn:
            raise NotImplementedError("the rows of a Loop that never ran have no shape")
        return (*current, *(np.stack(rows) for rows in collected))


class Scan(_Iterated):
    """Scan since opset 9, in any direction along any axis."""

    num_scan_inputs: int

    def _run(
        self, *operands: Value, context: Names | None = None, attributes: Names | None = None, **settings: Any
    ) -> tuple[Value, ...]:
        if self.run_params["opsets"].get("", 9) < 9:
            raise NotImplementedError("Scan of opset 8 has no float64 kernel")
        count = self.num_scan_inputs
        current, scanned = list(operands[:-count]), operands[-count:]

        def setting(name: str, number: int) -> int:
            values = settings.get(name) or ()
            return int(values[number]) if number < len(values) else 0

        rows = [np.moveaxis(value, setting("scan_input_axes", n), 0) for n, value in enumerate(scanned)]
        rows = [row[::-1] if setting("scan_input_directions", n) else row for n, row in enumerate(rows)]
        collected: list[list[Value]] = [[] for _ in self.body.output_names[len(current) :]]
        for elements in zip(*rows, strict=True):
            outputs = self._run_once([*current, *elements], context, attributes)
            current = outputs[: len(current)]
            for parts, part in zip(collected, outputs[len(current) :], strict=True):
                parts.append(part)
        if collected and not collected[0]:
            raise NotImplementedError("the rows of a Scan over nothing have no shape")
        results = []
        for number, parts in enumerate(collected):
            ordered = parts[::-1] if setting("scan_output_directions", number) else parts
            results.append(np.stack(ordered, axis=setting("scan_output_axes", number)))
        return (*current, *results)
