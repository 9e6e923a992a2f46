"""The search for schedules: ``OperatorGraph, kernels -> kernels, decisions``.

A task (tasks.py) is a distinct kernel; a candidate is a set of decisions of its schedule (../decisions.py,
space.py). measurement_setup.py builds candidates (runners/builders.py: a process pool, or a Dask cluster), runs them
(runners/measuring.py; local_runner.py, rpc_runner.py, emulated_runner.py) and keeps a record of each (records.py).
evolution.py proposes candidates of a task, guided by a cost model that is learned from the records
(cost_model.py); tuner.py is the search, which says which task is next, with the reformer of AGO (section V)
and its joins (joins.py). settings.py holds the options of a search.
"""
