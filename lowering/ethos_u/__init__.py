"""Arm's Ethos-U: quantised models as TOSA, which Arm's compiler Vela translates.

- tosa/: graphs of TOSA, as data, as numbers and as a file;
- emission/: from quantised operators of ONNX to TOSA;
- vela.py, search.py: Vela's program and estimate for a graph, and the settings that give the best ones;
- reference.py, verification.py: Arm's reference model and ONNX Runtime as judges of the bits;
- files.py, model.py: the bundle, and running what it holds.

back_end.py is the door: other folders import nothing else.
"""
