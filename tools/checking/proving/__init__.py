"""Proofs for given shapes: elements are symbols, which normal forms and z3 compare."""
