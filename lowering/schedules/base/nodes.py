"""Names of TVM's nodes in annotations. TVM makes the fields of its classes at run time: mypy takes a node for Any."""

from __future__ import annotations

from typing import Any

Statement = Any
"""A statement of TensorIR, a loop or a block in one, or the realisation of a block."""
Expression = Any
"""An expression of TensorIR: an index, an element, a condition."""
Variable = Any
"""A variable of TensorIR: of a loop, of a block, or a size."""
Buffer = Any
"""A buffer of TensorIR."""
