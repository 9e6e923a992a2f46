"""Prices of single operators: what a node of the e-graph costs on a device, before it has run.

A `CostModel` prices one operator from its name, attributes and tensor types. The cost of a graph is the
sum of the prices of its nodes, each counted once (DAG cost). See README.md for how to add one, or a device.
"""
