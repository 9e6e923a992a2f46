"""What is swept: every architecture in one form, exporters and free sizes taking turns, and some in all forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..architectures import ARCHITECTURES, Form, forms_in_turn, forms_of
from ..architectures.environments import make_environment
from ..architectures.exporting import Export, export_all, exported_names
from ..judging.subjects import exported_subject

_IN_ALL_FORMS = 40
"""Architectures that are swept in all forms, evenly spread over those of PyTorch."""
_SEEDS = (0, 1)
"""Of the inputs that results are compared on; times are those of the first."""


def list_forms(has_all_forms: bool) -> dict[str, list[Form]]:
    """The forms of each architecture: one, and with `has_all_forms` all of some."""
    chosen = {name: [form] for name, form in forms_in_turn(ARCHITECTURES).items()}
    if not has_all_forms:
        return chosen
    several = [name for name, each in ARCHITECTURES.items() if len(forms_of(each)) > len(_SEEDS)]
    for position in range(_IN_ALL_FORMS):
        name = several[position * len(several) // _IN_ALL_FORMS]
        chosen[name] = list(forms_of(ARCHITECTURES[name]))
    return chosen


def family_of(export: Export) -> str:
    """The library of an architecture."""
    return export.architecture.library


def export_networks(only: Sequence[str], has_all_forms: bool, makes_new: bool, folder: Path) -> Iterator[Export]:
    """The networks whose names have one of these parts, or all, as files of a folder; with what was not exported.

    Only those that were exported earlier, unless it `makes_new` ones.
    """
    chosen = {
        name: forms for name, forms in list_forms(has_all_forms).items()
        if not only or any(part.lower() in name.lower() for part in only)
    }  # fmt: skip
    environments = folder / "environments"
    models = folder / "models"
    if not makes_new:
        known = exported_names(models)
        chosen = {name: [f for f in forms if f"{name}.{f.suffix}" in known] for name, forms in chosen.items()}
    return export_all(chosen, models, lambda each: make_environment(each, environments / each.name))


def write_inputs(export: Export, folder: Path) -> Path:
    """Sets of ordinary inputs, 0.npz and 1.npz in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    subject = exported_subject(export)
    for seed in _SEEDS:
        np.savez(folder / f"{seed}.npz", **subject.draw(seed))  # type: ignore[arg-type]
    return folder
