"""``eqfuse bench``, for bundles of each kind."""
