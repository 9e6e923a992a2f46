"""The stages from a model to an optimised model or a bundle, in their order.

`optimize.py`: `Model -> EGraph -> Selection -> Partition -> Model`, by `saturate.py`, `extract.py` and `partition.py`.
`compile.py`: an optimised model to a bundle, by one of the back ends `processor.py`, `cross_project.py` and
`accelerator.py`, its schedules searched by `tune.py`. `bisect.py` and `observe.py` run the stages to answer questions
about rules; `inspect.py` and `bench.py` look at models and measure bundles.
"""
