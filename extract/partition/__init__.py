"""Partition: from a graph of operators to fused, acyclic sub-graphs: ``OperatorGraph -> Partition``.

- groups.py: the partition of operators into groups, numbered in an order in which each reads only earlier ones;
- templates/: the cost and savings of a sub-graph, by the loops that its operators share (operator_loops.py, loops.py);
- search/: methods.py is the entry; windows.py, convex.py, cover.py: exact improvement, window by window;
- baselines/: DNNFusion's fusion plan, TVM's FuseOps and AGO's clustering;
- canonical_key.py: one name for equal sub-graphs;
- annotations/: partitions in models, and the order of the groups as a certificate that z3 checks.
"""
