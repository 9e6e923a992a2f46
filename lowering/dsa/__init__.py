"""Domain-specific accelerators, after GraphTurbo (OSDI 2023): ``OperatorGraph -> Schedule -> Program``.

The graph scheduler (section 3):

- network.py, storage.py, boxes.py, operand_boxes.py: a network, how its tensors lie, which part of what needs which;
- batches.py, clusters.py: a graph at another batch size, and how a batch is cut over clusters (sections 2.1 and 5.1);
- layer_order.py, deep_products.py, hidden_pieces.py, constant_slices.py: layers as the accelerator runs them;
- subgraphs.py, pieces.py, split_info.py, recomputation.py: Algorithm 1 and equation 1;
- grouping.py, patterns.py: Algorithm 2, with straight, diamond and branch patterns (Fig. 4), rules (i) and (ii);
- instances.py, ordering.py, best_order.py (order_*.py): instances and their dependences (Fig. 6), BFS, DFS (Algorithm
  3), and better orders; order_picture.py draws them;
- core_factors.py, binding.py: core binding and scopes, Algorithm 4;
- scheduler.py: all of it.

The kernel generator (section 4):

- core_parts.py, flow.py, piecewise.py: how cores share layers, and who reads what;
- tiling.py, tiles.py (tile_*.py, local_*.py): tiles, their work, and their kernels through TVM TE;
- residence.py, spilling.py, memory_map.py, addresses.py: where tensors stay, and at which addresses (4.2 and 4.3);
- promotion.py, weight_emission.py, emission.py, hazards.py, layout.py, generator.py (generated.py),
  instruction_order.py: instructions (4.1 and 4.4);
- variants.py: the steps of the text's ablation, and what it is compared with; alternatives.py: which are worth a
  program; compiler.py: the best for a batch.

Programs: program.py (program_text.py, program_json.py), validate.py (structure.py, shadow.py, happens_before.py),
simulate_function.py, simulate_time.py (cost.py, systolic.py, sharing.py), time_report.py, trace.py, timeline_svg.py.

Bundles: section.py, stored_program.py, constants.py, graph_json.py, report_page.py, simulated_model.py,
verification.py, rounding.py.
"""
