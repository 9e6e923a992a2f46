"""How many cycles a systolic array takes for a matrix product, by SCALE-Sim's published forms.

An array of R rows and C columns maps two of the product's extents on itself, Sr and Sc, in ceil(Sr/R) * ceil(Sc/C)
folds, and streams the third, T. Samajdar et al., "A systematic methodology for characterizing scalability of DNN
accelerators using SCALE-Sim" (ISPASS 2020), tables II and III, and SCALE-Sim v2, which counts these cycles for a
fold:

- output stationary, Sr = M, Sc = N, T = K: ``T + R + C - 2``, from the first operand to the last accumulation (the
  paper's analytical ``2R + C + T - 2`` adds R cycles that drain the results, which SCALE-Sim v2 overlaps);
- weight stationary, Sr = K, Sc = N, T = M, and input stationary, Sr = K, Sc = M, T = N: ``2R + C + T - 2``, of which R
  fill the array with what stays.

An array that loads ahead has a second place in each cell for what stays, as the matrix unit of TPU v1 has for weights
(Jouppi et al., "In-datacenter performance analysis of a tensor processing unit", ISCA 2017): the next weights arrive
while rows are multiplied by the present ones, and rows of one fold enter right behind those of the fold before. A fold
takes ``max(T, R)`` cycles then, and the last one of a product ``R + C - 2`` more until its results have left the array.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from .dsa_device import ComputeUnit, Dataflow


class Product(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`count` matrix products of (m, k) by (k, n), `eight_bits` if their operands are integers of 8 bits; a part of the
    files of programs."""

    m: int
    n: int
    k: int
    count: int = 1
    eight_bits: bool = False

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.m * self.n * self.k * self.count


@dataclass(frozen=True)
class SystolicArray:
    """`rows` x `columns` multiply-accumulators; `loads_ahead` if operands that stay arrive behind those in use."""

    rows: int
    columns: int
    dataflow: Dataflow = Dataflow.OUTPUT_STATIONARY
    loads_ahead: bool = False

    @classmethod
    def of(cls, unit: ComputeUnit, dataflow: Dataflow) -> SystolicArray:
        """A matrix unit that runs a dataflow."""
        return cls(unit.rows, unit.columns, dataflow, unit.loads_ahead)

    def cycles(self, product: Product) -> int:
        """Cycles of `product.count` products, one after another."""
        spatial_rows, spatial_columns, streamed = self._mapping(product)
        folds = -(-spatial_rows // self.rows) * -(-spatial_columns // self.columns)
        across = self.rows + self.columns - 2
        if self.dataflow is Dataflow.OUTPUT_STATIONARY:
            return product.count * folds * (streamed + across)
        if self.loads_ahead:
            return product.count * (folds * max(streamed, self.rows) + across)
        return product.count * folds * (self.rows + streamed + across)

    def _mapping(self, product: Product) -> tuple[int, int, int]:
        m, n, k = product.m, product.n, product.k
        return {
            Dataflow.OUTPUT_STATIONARY: (m, n, k),
            Dataflow.WEIGHT_STATIONARY: (k, n, m),
            Dataflow.INPUT_STATIONARY: (k, m, n),
        }[self.dataflow]


def best_dataflow(unit: ComputeUnit, product: Product) -> tuple[int, Dataflow]:
    """The least cycles of a product over the dataflows of a matrix unit, and the first dataflow that takes them.

    The array may as well compute the transposed product: its rows are the other operand's then. Of integers of 8 bits
    a cell multiplies `unit.int8` neighbours along the reduction at once, and adds them up.
    """
    arrays = [SystolicArray.of(unit, each) for each in unit.dataflows]
    depth = -(-product.k // unit.rate(product.eight_bits))
    both = [Product(*sides, depth, product.count) for sides in ((product.m, product.n), (product.n, product.m))]
    options = ((array.cycles(each), array.dataflow) for array in arrays for each in both)
    return min(options, key=lambda option: option[0])
