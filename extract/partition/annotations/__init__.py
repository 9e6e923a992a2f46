"""The written forms of a partition: metadata of a model, local functions, a certificate that z3 checks."""
