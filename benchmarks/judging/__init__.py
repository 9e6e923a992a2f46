"""What `judge.py` is made of: subjects, kinds of damage, a measure of damage in float64, and the two trials."""
