"""Programs of all clusters: a batch shared over them, and what they do at the same time."""
