"""The stages from a model to an optimised model or a bundle, in their order.

`optimize.py`: `Model -> EGraph -> Selection -> Partition -> Model`, by `saturate.py`, `extract.py` and `partition.py`.
`compiler/`: an optimised model to a bundle. `session/`: ONNX Runtime's sessions, with compiled code. `bisect.py` and
`observe.py` run the stages to answer questions about rules; `inspect.py` and `bench.py` look at models and measure
bundles.
"""
