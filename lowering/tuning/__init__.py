"""The search for schedules: ``OperatorGraph, kernels -> kernels, decisions``.

A task (task.py, tasks.py) is a distinct kernel; a candidate is what its schedule decides (../decisions.py, space.py).
trials.py builds candidates (builders.py: a process pool, or a Dask cluster), runs them (measuring.py; local_runner.py,
rpc_runner.py, emulated_runner.py) and keeps a record of each (records.py). evolution.py proposes candidates of a task,
guided by what was learned (cost_model.py, learning.py); task_scheduler.py says which task is next; tuner.py is the
search, with the reformer of AGO (section V) and its joins (joins.py). settings.py and equipment.py: what a search is
asked for, and has.
"""
