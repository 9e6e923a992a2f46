"""Partition: from a graph of operators to fused, acyclic sub-graphs: ``OperatorGraph -> Partition``.

- operator_graph.py: the operators and values to cut, from a model; groups.py: a cut of them into groups, numbered in an
  order that proves it acyclic; certificate/: that order as a file, and z3's check of it;
- kernels.py, operator_loops.py, loops.py: what a sub-graph costs, from the loops that its operators can share;
- search/: methods.py is the way in; windows.py, convex.py, cover.py: exact improvement, window by window;
- baselines/: DNNFusion's fusion plan, TVM's FuseOps and AGO's clustering;
- layouts/: layouts of feature maps, and the fewest conversions;
- canonical_key.py: one name for equal sub-graphs; annotate.py, local_functions.py: partitions in models.
"""
