"""Domain-specific accelerators, after GraphTurbo (OSDI 2023): ``OperatorGraph -> Schedule -> Program``.

Each folder imports only from those above it:

- network/: the operators to schedule, their sizes on the accelerator, and which part of a value needs which;
- program/: programs of instructions with addresses, their costs, and the check of their rules;
- schedule/: the graph scheduler (section 3): sub-graphs, their instances, orders of these, and core bindings;
- simulate/: programs run on real bytes, and in cycles;
- tiles/: the parts of a layer that a core computes at once, as graphs and as kernels;
- codegen/: the kernel generator (section 4): where tensors stay, at which addresses, and the instructions; and
  the fastest program of a cluster;
- clusters/: programs of all clusters for a batch;
- report/: pictures and traces of a simulated run;
- bundle/: the files of a program, and running and verifying what they hold.

back_end.py is the door: other folders import nothing else.
"""
