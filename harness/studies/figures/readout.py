"""The function at every depth of a learnt-depth network, and of a fixed-depth one read out before its end: figure 3."""

from harness.reporting.drawing import Drawing
from harness.studies.figures.planes import Row, depths_shown, draw_rows, maps_of, marginal_map
from harness.studies.networks import load_network
from harness.studies.readings import deepest_unit, learnt_unit
from harness.studies.results import StudyResults
from harness.studies.words import name_of

DEPTHS = 9


def draw_readout(results: StudyResults, storage: str) -> Drawing:
    seed = results.seeds[0]
    rows, gone, chosen = [], [], []
    for cell in results.cells:
        depths = depths_shown(cell.space.depth.max, DEPTHS)
        name = f"{name_of(cell)} " if len(results.cells) > 1 else ""
        units = results.of(cell).get(seed, {})
        learnt, fixed = (load_network(find(units), results.out, storage) for find in (learnt_unit, deepest_unit))
        if learnt:
            rows.append(Row(f"{name}LDN", learnt.data, [*maps_of(learnt, depths), marginal_map(learnt)]))
            chosen.append(f"{name}d_opt = {learnt.d_opt}")
        if fixed:
            rows.append(Row(f"{name}fixed depth", fixed.data, maps_of(fixed, depths)))
        gone += [f"{name}{kind}" for kind, found in (("LDN", learnt), ("fixed depth", fixed)) if found is None]
    return draw_rows(
        "readout",
        "The function that each depth computes",
        f"Seed {seed}. p(class 1) over the input plane, single depths d. LDN: one learnt-depth network; framed: its "
        "prediction over the depths it keeps. Fixed depth: a network of D blocks, its output block put on the "
        "activations after d blocks. Dots: training points; x₁ and x₂ have the same range.",
        rows,
        chosen,
        gone,
    )
