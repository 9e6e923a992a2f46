"""From an optimised model to a bundle or a C project: `compile.py` chooses a back end and runs it.

`compilation.py` has the model to compile and the protocol of back ends: `processor.py`, which measures its kernels by
`kernel_choice.py`, `accelerator.py` and `ethos.py`. `tune.py` searches for schedules of processors.
"""
