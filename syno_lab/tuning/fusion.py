"""The schedule rule ``fuse-stages``: compute all stages of a chain of sums in one loop over blocks of rows.

A chain of sums, such as Operator 1, writes a complete stage (``Z1``) before the next stage reads it. The rule
`fuse-stages` cuts the last sum's rows into blocks. Each block computes the part of the earlier stages that it reads,
padding included, and this part fits in the cache of a core. Only the loop over the blocks is parallel. So threads do
not wait for each other after each stage, and no thread reads another thread's results. Two blocks both compute the rows
at their common edge, as in the fused layers of Alwani et al., *Fused-layer CNN accelerators* (MICRO 2016).

The rule runs before ``channel-lanes``, which tiles each stage inside the blocks.

Imports TVM: for tuning processes only.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import Buffer

from syno_lab.tuning.lanes import divisors, has_lanes
from syno_lab.tuning.sums import Sum, moves, own_loops, read_sum

#: The largest size in bytes of all stages of a block: half of a small second-level cache.
_MOST_BYTES = 256 * 1024
#: The largest number of proposed cuts, because every cut makes further sketches.
_MOST_CUTS = 2
#: The largest factor by which blocks may multiply the work, because rows at their edges are computed twice.
_MOST_WORK = 1.5


@dataclass(frozen=True)
class _Cut:
    """A cut: the loops of the last sum that become loops over blocks.

    Attributes:
        whole: the outer loops; each of their steps has its own blocks.
        axis: the loop that is divided into blocks, inside the loops ``whole``.
        rows: the number of steps of ``axis`` in a block.
        blocks: the total number of blocks.
    """

    whole: tuple[int, ...]
    axis: int
    rows: int
    blocks: int


def fuse_stages(schedule: Schedule, block: SBlockRV, cores: int, vector_bits: int) -> list[Schedule]:
    """Return the unchanged schedule, and schedules with the stages that only ``block`` reads inside loops over blocks.

    The rule fits a sum that reads another sum, if no other rule has changed the two sums and ``channel-lanes`` fits
    both in the blocks. An axis of the output must index the sum that is read. Each core needs a block.
    """
    look = schedule.copy()  # a copy, because reading loops adds steps to a trace
    last = read_sum(look, block)
    if last is None or last.outer or not has_lanes(last, vector_bits):
        return [schedule]
    stages = _stages(look, block)
    sums = {name: stage_sum for name, stage in stages.items() if (stage_sum := read_sum(look, stage)) is not None}
    if not sums:
        return [schedule]
    steps = {name: _steps(look, stage) for name, stage in stages.items()}
    fused = [schedule]
    written = [look.get(stage).writes[0].source for stage in stages.values()]
    for cut in _cuts(last, written, sum(each_sum.bytes for each_sum in sums.values()), cores):
        changed = schedule.copy()
        try:
            more = _apply(changed, block, steps, sums, cut)
        except ScheduleError:  # TVM refuses some cases, such as two blocks that write a stage
            continue
        if more <= _MOST_WORK and all(_has_lanes(changed, name, vector_bits) for name in sums):
            fused.append(changed)
    return fused


def _has_lanes(schedule: Schedule, name: str, vector_bits: int) -> bool:
    """Return whether ``channel-lanes`` fits a stage at its present position."""
    look = schedule.copy()
    stage_sum = read_sum(look, look.get_sblock(name))
    return stage_sum is not None and has_lanes(stage_sum, vector_bits)


def _apply(schedule: Schedule, block: SBlockRV, stages: dict[str, int], sums: Collection[str], cut: _Cut) -> float:
    """Move the stages into the blocks; return the factor by which their work grows."""
    loops = own_loops(schedule, block)
    blocks, rows = schedule.split(loops[cut.axis], [None, cut.rows])
    inner = [rows if n == cut.axis else loop for n, loop in enumerate(loops) if n not in cut.whole]
    schedule.reorder(*(loops[n] for n in cut.whole), blocks, *inner)
    work = 0
    for name, steps in stages.items():
        moved = schedule.copy()
        # Loops of one step are kept, so that each iterator of the stage has its own loop.
        moved.compute_at(moved.get_sblock(name), blocks, preserve_unit_loops=True)
        part = _steps(moved, moved.get_sblock(name))
        if part < steps:  # if equal, each block computes the complete stage
            stage = schedule.get_sblock(name)
            schedule.compute_at(stage, blocks, preserve_unit_loops=True)
            if name not in sums:
                # TVM's postprocessor would make vectors of several rows of such a stage, for example a padded copy, and
                # then divide the index of each element in a condition. TVM does not change a loop with an annotation.
                schedule.annotate(own_loops(schedule, stage)[-1], "syno_lab.row", 1)
            work += part * cut.blocks
        else:
            work += steps
    return work / sum(stages.values())


def _stages(schedule: Schedule, block: SBlockRV) -> dict[str, SBlockRV]:
    """Return, by name, the blocks whose results are used for ``block`` alone; each block comes after its readers."""
    readers = {_name(schedule, block): block}
    waiting = [block]
    for reader in waiting:  # the loop itself appends to this list
        for stage in schedule.get_producers(reader):
            name = _name(schedule, stage)
            if name not in readers and all(_name(schedule, r) in readers for r in schedule.get_consumers(stage)):
                readers[name] = stage
                waiting.append(stage)
    return dict(list(readers.items())[1:])


def _name(schedule: Schedule, block: SBlockRV) -> str:
    return str(schedule.get(block).name_hint)


def _steps(schedule: Schedule, block: SBlockRV) -> int:
    """Return the number of times that a block's own loops run the block."""
    return math.prod(int(schedule.get(loop).extent) for loop in own_loops(schedule, block))


def _cuts(last: Sum, written: list[Buffer], size: int, cores: int) -> list[_Cut]:
    """Return the cuts with the fewest blocks whose stages fit in the cache. Equal shares for all cores come first.

    A cut divides the axis of the output that is the slowest index of the largest stage that ``last`` reads. If one step
    of that axis needs too many bytes, the next inner axis is divided. ``written`` are the tensors that the stages
    write; the sums' tensors have ``size`` bytes in total.
    """
    read = [
        (math.prod(int(size) for size in tensor.shape), indices)
        for tensor, indices in zip(last.read, last.factors, strict=True)
        if any(tensor.same_as(buffer) for buffer in written)
    ]
    largest = max(read, key=lambda entry: entry[0])[1]
    outer = [n for n in last.stored[:-1] if n is not None and last.sizes[n] > 1]
    axes = [n for index in largest for n in outer if moves([index], last.variables[n])]
    for depth, axis in enumerate(axes):
        outer_steps = math.prod(last.sizes[n] for n in axes[:depth])
        cuts = [
            _Cut(tuple(axes[:depth]), axis, rows, outer_steps * last.sizes[axis] // rows)
            for rows in divisors(last.sizes[axis], last.sizes[axis])
        ]
        cuts = [cut for cut in cuts if cut.blocks >= max(cores, 2) and size <= _MOST_BYTES * cut.blocks]
        if cuts:
            cuts.sort(key=lambda cut: (cut.blocks % cores > 0, cut.blocks))
            return cuts[:_MOST_CUTS]
    return []
