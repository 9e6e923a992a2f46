"""What decides about outputs that differ: a run in float64, the promise on bold inputs, the steps of quantisers."""
