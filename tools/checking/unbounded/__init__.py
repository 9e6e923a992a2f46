"""Proofs of rules for tensors of every rank and every size.

TensorRight (Arora et al., POPL 2025, doi 10.1145/3704865) proves rewrites for any rank by a bound on it. Here the rank
is itself a number that the solver knows nothing of, and what holds for all axes is used at the axes that a proof looks
at, which needs no bound.
"""
