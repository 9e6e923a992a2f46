"""Explanations of what the rules did: chains of rewrites that can be replayed, and why a rule did not match."""
