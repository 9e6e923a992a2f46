"""Proofs of rules for tensors of every rank and every size.

TensorRight (Arora et al., POPL 2025, doi 10.1145/3704865) proves rewrites for any rank by a bound on it. Here the rank
is an unknown number for the solver, and facts about all axes are used only at the axes that a proof looks up, so that
no bound is needed.
"""
