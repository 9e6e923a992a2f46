"""The parts of `sweep.py`: what is swept, what is done with each network, and the rows that say how it went."""
