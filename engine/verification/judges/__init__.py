"""Judgements of outputs that differ: a run in float64, the promise on stress inputs, the steps of quantisers."""
