"""Partition: from a graph of operators to fused, acyclic sub-graphs: ``OperatorGraph -> Partition``.

- graph.py, of_model.py: the operators and values to cut; partition.py: a cut of them into groups, numbered in an order
  that certifies it; certificate.py, certify.py: that order as a file, and z3's check of it;
- kernels.py, index_maps.py, loops.py: what a sub-graph costs, from the loops that its operators can share;
- search.py: the way in; windows.py, convex.py, cover.py, structure.py: exact improvement, window by window;
- DNNFusion: mapping_types.py (Table 2), combination.py (Table 3), fusion_plan.py (Listing 1), constraints.py,
  intermediate.py, index_map_fusion.py; contraction.py: groups that merge and never into a cycle;
- FuseOps: fuse_ops.py, pattern_kinds.py, forward_graph.py, post_dominators.py;
- AGO: clustering.py (Algorithm 1), weights.py (Eq. 1), topological_stage.py, statistics.py (Fig. 14);
- layouts.py and layout_*.py: layouts of feature maps, and the fewest conversions;
- canonical_key.py: one name for equal sub-graphs; annotate.py, local_functions.py: partitions in models.
"""
