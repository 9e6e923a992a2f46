"""Rule synthesis: terms are enumerated, grouped by their values on random tensors, and equal ones made rules.

The loop is Ruler's (Nandi et al., "Rewrite rule inference using equality saturation", OOPSLA 2021): of the pairs of
equal terms the best is made a rule, and what then follows from the rules, by saturation, is left out. Terms over
tensors and their fingerprints are as in TASO (Jia et al., SOSP 2019).
"""
