"""All templates, in the order in which they are asked where two would cost the same."""

from __future__ import annotations

from .anchored import PRODUCT, ROWS, WINDOW
from .convolution_chain import CONVOLUTION_CHAIN
from .pointwise import MOVEMENT, POINTWISE
from .product_chain import PRODUCT_CHAIN
from .recurrence import RECURRENCE
from .row_chain import ROW_CHAIN
from .single import OPERATOR
from .template import Template

TEMPLATES: tuple[Template, ...] = (
    MOVEMENT, POINTWISE, PRODUCT, WINDOW, ROWS, ROW_CHAIN, RECURRENCE, CONVOLUTION_CHAIN, PRODUCT_CHAIN, OPERATOR,
)  # fmt: skip
