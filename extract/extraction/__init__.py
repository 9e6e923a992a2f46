"""Extraction: from an e-graph and costs to the cheapest acyclic graph, proven or with its gap.

select.py is the entry, from a saturated e-graph; the others are pure algorithms over an abstract e-graph (problem.py)
and know nothing of ONNX. solve.py runs them in this order:

- reduce.py, dominance.py: drop options that no optimal extraction needs, find the classes that all contain;
- cores.py: split the rest into independent components, and recognise equal ones;
- greedy.py: a quick acyclic answer per distinct component, the start and the fallback of
- branch.py, bounds.py: the proven optimum of most components, by a search over frontiers; for the others
- milp.py: the proven optimum by HiGHS, or a bound within the time limit, which neighbourhoods improve;

Finally it takes the original candidates wherever others cost the same.

Results depend on the problem alone (not on hash seeds, nor on time unless the time limit is hit).
"""
