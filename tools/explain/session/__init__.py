"""An e-graph of its own that a proof is looked for in."""
