"""Arm's Ethos-U: quantised models as TOSA, which Arm's compiler Vela translates.

- tosa/: graphs of TOSA, as data, as numbers and as a file;
- emission/: from quantised operators of ONNX to TOSA;
- alternatives.py: other graphs with the same results;
- vela.py: Vela's program and estimate for a graph;
- search.py: the graph and the setting that give the best program;
- verification.py: Arm's reference model and ONNX Runtime as judges of the bits;
- model.py: running what a bundle holds.

back_end.py is the door, and writes the files of a bundle: other folders import nothing else.
"""
