"""The rules that schedule a kernel with one operator that computes, or none."""
