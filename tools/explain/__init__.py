"""Explanations of the work of the rules: chains of rewrites that can be replayed, and why a rule did not match."""
