"""A session with the interface of ONNX Runtime's, in which compiled code takes over if it is right and faster.

A call runs in ONNX Runtime until another process (`process.py`) has compiled the model for the sizes of the call,
compared it on the caller's own inputs, timed it, and left its verdict in the cache (`verdicts.py`). Programs use
`session.py`; `sizes.py` has the calls of one set of input sizes, those that compiled code runs among them.
"""
