"""Certificates of partitions, and their check by z3."""
