"""Whether a model computes each sample of a batch as the original, which takes one sample, computes it by itself."""

from __future__ import annotations

from pathlib import Path

from .inputs import generate, input_specs, plans
from .runs.compare import Tolerance, compare
from .runs.run import OnnxRuntime
from .runs.source import read_source
from .runs.structure import Structure
from .runs.values import RunError


def find_mixed_samples(original: Path, freed: Path, batch: str, seed: int) -> str:
    """How the model whose inputs begin with a dynamic `batch` differs in ONNX Runtime; "" if it does not.

    Both run on the same samples, the original on one after the other.
    """
    before, after = read_source(original, "original"), read_source(freed, "original")
    specs = input_specs(Structure(after.structure))
    batched = {spec.name for spec in specs if spec.dims and spec.dims[0] == batch}
    refusal = "it runs on none of the inputs tried"
    try:
        alone, together = OnnxRuntime(before), OnnxRuntime(after)
    except RunError as error:
        return str(error)
    for plan in plans(specs, {}):
        feeds = generate(specs, plan, seed)
        count = min(len(feeds[name]) for name in batched)
        if count < 2:
            continue
        try:
            results = together.run(feeds)
            for sample in range(count):
                one = slice(sample, sample + 1)
                expected = alone.run({n: value[one] if n in batched else value for n, value in feeds.items()})
                for name, value in expected.items():
                    if not (difference := compare(value, results[name][one], Tolerance())).equal:
                        return f"output {name!r} of a sample depends on the other ones: it is off by {difference}"
            return ""
        except RunError as error:
            refusal = str(error)
    return refusal
