"""Predicted costs of single operators: the cost of a node of the e-graph on a device.

A `CostModel` predicts the cost of one operator from its name, attributes and tensor types. The cost of a graph is the
sum of the costs of its nodes, each counted once (DAG cost). See README.md for how to add one, or a device.
"""
