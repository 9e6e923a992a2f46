"""Proofs over symbols for listed shapes: symbolic elements, and what z3 and normal forms say of them."""
