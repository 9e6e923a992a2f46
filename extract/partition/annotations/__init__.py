"""A partition as it is written: in the metadata of a model, as local functions, as a certificate that z3 checks."""
