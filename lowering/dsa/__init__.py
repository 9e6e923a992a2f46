"""Domain-specific accelerators: GraphTurbo's scheduler (Zhao et al., OSDI 2023), ``OperatorGraph -> Schedule``.

- batches.py: a graph at another batch size; clusters.py: how a batch is cut over clusters (sections 2.1 and 5.1);
- boxes.py, operand_boxes.py: which part of its operands an operator needs for a part of its result;
- subgraphs.py: sub-graphs and what a part of their outputs needs; split_info.py: Algorithm 1 and equation 1;
  recomputation.py: when overlapping instances compute too much twice;
- grouping.py: Algorithm 2, with patterns.py: straight, diamond and branch patterns (Fig. 4), rules (i) and (ii);
- instances.py: instances and their dependences (Fig. 6); ordering.py: BFS and DFS, Algorithm 3;
- binding.py: core binding and buffer scopes, Algorithm 4; movement.py: concatenation, copy, redistribution and split
  (sections 3.5 and 3.6);
- scheduler.py: all of it.
"""
