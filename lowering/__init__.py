"""From a graph partitioned into kernels to compiled code.

Folders in the order in which they may use each other:

- base/: the target, a model's ports and weights, tools, threads, decisions and errors;
- plan/: the written description of a compiled model;
- compute/: operators as tensor expressions;
- arm/: the emulator of a board for which C projects are made;
- bundle/: compiled models as folders with a manifest; what was just compiled runs in a process of its own;
- loops/: operators as plain C;
- schedules/: a kernel's loops, tiled, vectorised and shared by threads;
- kernels/: kernels as functions, which get a schedule and are compiled in processes of their own; what has no lowering
  runs in ONNX Runtime;
- program/: generated C that calls the kernels in order, in a shared library or in a C project;
- running/: bundles run from Python, timed, and blamed for what they do wrong;
- tuning/: the search for faster schedules.

dsa/ is another way, for accelerators.
"""
