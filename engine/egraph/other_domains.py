"""Operators of other domains in rules: ``(Op "com.example.FusedSwish/beta=1.0" (Cons x (Nil)))``.

A node that fits no constructor is opaque to rules, unless one names its operator. The key of such a term is the domain
and type of the operator, then its attributes in alphabetical order. By naming an operator, a rule states that
equal operands give it equal results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from ...rules.places import rule_paths

_NAMED = re.compile(r'\(Op\s+(?:\(\+\s+)?"([^"/]+)')
_PLAIN = {
    ir.AttributeType.INT,
    ir.AttributeType.FLOAT,
    ir.AttributeType.STRING,
    ir.AttributeType.INTS,
    ir.AttributeType.FLOATS,
}


def named_operators(paths: Sequence[Path]) -> frozenset[str]:
    """The operators, as ``domain.Type``, that the rules of some files name."""
    names: set[str] = set()
    for path in rule_paths(paths):
        with suppress(OSError, UnicodeDecodeError):  # the loader reports problems of the file
            names.update(_NAMED.findall(path.read_text(encoding="utf-8")))
    return frozenset(names)


def operator_key(node: ir.Node, named: Iterable[str]) -> str | None:
    """The key of a node whose operator is `named`; None for other nodes, and for attributes that no key can hold."""
    name = f"{node.domain}.{node.op_type}"
    if name not in named or len(node.outputs) != 1 or any(a.type not in _PLAIN for a in node.attributes.values()):
        return None
    texts = [f"{a.name}={_text(a.value)}" for a in sorted(node.attributes.values(), key=lambda a: a.name)]
    return None if any(re.search(r"[\s/\"]", t) for t in texts) else "/".join((name, *texts))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(float(str(np.float32(value))))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(f"{_text(v)}," for v in value)
    return str(value)


def parse_operator_key(text: str) -> tuple[str, str, Mapping[str, Any]] | None:
    """Domain, type and attributes of a key; None for the key of an opaque node."""
    name, *attributes = text.split("/")
    domain, _, op_type = name.rpartition(".")
    if not domain or "#" in text:
        return None
    pairs = (a.partition("=") for a in attributes)
    return domain, op_type, {n: _value(v) for n, _, v in pairs}


def _value(text: str) -> Any:
    if text.endswith(","):
        return [_value(item) for item in text[:-1].split(",")]
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
