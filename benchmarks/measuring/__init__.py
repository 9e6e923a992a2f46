"""What the programs beside this folder share: compared programs take turns, and results are looked at."""
