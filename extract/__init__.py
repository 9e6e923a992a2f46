"""Extraction: from an e-graph and prices to the cheapest acyclic graph, proven or with its gap.

The solvers are pure algorithms over an abstract e-graph (problem.py) and know nothing of ONNX. solve.py is the way in;
the pipeline it runs:

- reduce.py, dominance.py: drop what no optimal extraction needs, find the classes that every extraction contains;
- components.py: split what is left into independent components, and recognise the equal ones;
- greedy.py: a quick acyclic answer per distinct component, the start and the fallback of
- frontier/: the proven optimum of most components, by a search over frontiers; for the rest
- milp.py: the proven optimum by HiGHS, or a bound within the time limit;
- ties.py: the original candidates wherever others cost the same.

Results depend on the problem alone (not on hash seeds, nor on time unless the time limit is hit).
"""
