"""Partition: from a graph of operators to fused, acyclic sub-graphs: ``Model -> OperatorGraph -> Partition``.

- graph.py: the operators and values to cut, and where they come from (of_model.py);
- partition.py: a cut of it into groups, and the order that certifies that the groups are acyclic and convex.
"""
