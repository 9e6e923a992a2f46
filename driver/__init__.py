"""The stages from a model to an optimised model or a bundle, in their order.

`optimize.py`: `Model -> EGraph -> Selection -> Partition -> Model`, by `saturate.py`, `extract.py` and `partition.py`.
`compiler/`: an optimised model to a bundle. `session/`: ONNX Runtime's sessions, with compiled code. `rules/` runs the
stages to answer questions about rules; `inspect.py` looks at models, `run.py` and `bench.py` run and measure bundles.
`choices.py` and `usage.py` hold the parts that a command needs before it imports the stages.
"""
