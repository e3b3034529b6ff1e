"""The schedule rule ``fuse-stages``: the stages of a chain of sums in one loop over blocks of rows.

A chain of sums, such as Operator 1, writes each stage (``Z1``) whole before the next one reads it. Here the last sum's
rows are cut into blocks, and each block computes what it reads of the stages before it, padding included: what a block
keeps of a stage fits in the cache of a core. In several threads the loop over the blocks is the only parallel one: the
threads do not wait for each other after each stage, and none reads what another has written. Rows at the edge of two
blocks are computed in both, as in the fused layers of Alwani et al., *Fused-layer CNN accelerators* (MICRO 2016).

The rule goes before ``channel-lanes``, which tiles each stage inside the blocks.

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

#: How many bytes of the stages a block keeps, at most: half of a small second-level cache.
_MOST_BYTES = 256 * 1024
#: How many numbers of blocks are proposed. Each multiplies the sketches.
_MOST_CUTS = 2
#: How many times a stage's work the blocks do at most, as rows at their edges are computed twice.
_MOST_WORK = 1.5


@dataclass(frozen=True)
class _Cut:
    """Loops of the last sum that become loops over blocks.

    Attributes:
        whole: the loops whose every position is a block.
        axis: the loop that is cut, inside of those.
        rows: how many of its positions are in a block.
        blocks: how many blocks there are in all.
    """

    whole: tuple[int, ...]
    axis: int
    rows: int
    blocks: int


def fuse_stages(schedule: Schedule, block: SBlockRV, cores: int, vector_bits: int) -> list[Schedule]:
    """The unchanged schedule, then those with the stages that only ``block`` reads inside loops over its blocks.

    The rule fits a sum that no other rule has changed yet and that reads another such sum, if ``channel-lanes`` fits
    both in their blocks, an axis of the output is an index of what is read, and each of ``cores`` has a block.
    """
    look = schedule.copy()  # even reading loops adds steps to a trace
    last = read_sum(look, block)
    if last is None or last.outer or not has_lanes(last, vector_bits):
        return [schedule]
    stages = _stages(look, block)
    sums = {name: found for name, one in stages.items() if (found := read_sum(look, one)) is not None}
    if not sums:
        return [schedule]
    steps = {name: _steps(look, one) for name, one in stages.items()}
    fused = [schedule]
    written = [look.get(one).writes[0].source for one in stages.values()]
    for cut in _cuts(last, written, sum(one.bytes for one in sums.values()), cores):
        one = schedule.copy()
        try:
            more = _apply(one, block, steps, sums, cut)
        except ScheduleError:  # TVM's own conditions, such as other writers of a stage
            continue
        if more <= _MOST_WORK and all(_has_lanes(one, name, vector_bits) for name in sums):
            fused.append(one)
    return fused


def _has_lanes(schedule: Schedule, name: str, vector_bits: int) -> bool:
    """Whether ``channel-lanes`` fits a stage where it is now."""
    look = schedule.copy()
    found = read_sum(look, look.get_sblock(name))
    return found is not None and has_lanes(found, vector_bits)


def _apply(schedule: Schedule, block: SBlockRV, stages: dict[str, int], sums: Collection[str], cut: _Cut) -> float:
    """Move the stages into the blocks; how many times their work it makes."""
    loops = own_loops(schedule, block)
    blocks, rows = schedule.split(loops[cut.axis], [None, cut.rows])
    inner = [rows if n == cut.axis else one for n, one in enumerate(loops) if n not in cut.whole]
    schedule.reorder(*(loops[n] for n in cut.whole), blocks, *inner)
    work = 0
    for name, steps in stages.items():
        moved = schedule.copy()
        # With its loops of one step, each of the stage's iterators keeps a loop of its own.
        moved.compute_at(moved.get_sblock(name), blocks, preserve_unit_loops=True)
        part = _steps(moved, moved.get_sblock(name))
        if part < steps:  # else each block would compute it whole
            stage = schedule.get_sblock(name)
            schedule.compute_at(stage, blocks, preserve_unit_loops=True)
            if name not in sums:
                _keep_rows(schedule, stage)
            work += part * cut.blocks
        else:
            work += steps
    return work / sum(stages.values())


def _keep_rows(schedule: Schedule, stage: SBlockRV) -> None:
    """Keep the loop over a row of a stage that sums nothing, such as a padded copy, as it is.

    TVM's postprocessor would make vectors of several rows, whose conditions then divide each element's number. It
    leaves loops with an annotation alone.
    """
    schedule.annotate(own_loops(schedule, stage)[-1], "syno_lab.row", 1)


def _stages(schedule: Schedule, block: SBlockRV) -> dict[str, SBlockRV]:
    """The blocks that only ``block`` and each other read, by name, each after those that read it."""
    readers = {_name(schedule, block): block}
    rest = [block]
    for one in rest:  # which grows
        for stage in schedule.get_producers(one):
            name = _name(schedule, stage)
            if name not in readers and all(_name(schedule, r) in readers for r in schedule.get_consumers(stage)):
                readers[name] = stage
                rest.append(stage)
    return dict(list(readers.items())[1:])


def _name(schedule: Schedule, block: SBlockRV) -> str:
    return str(schedule.get(block).name_hint)


def _steps(schedule: Schedule, block: SBlockRV) -> int:
    """How often a block's own loops run it."""
    return math.prod(int(schedule.get(one).extent) for one in own_loops(schedule, block))


def _cuts(last: Sum, written: list[Buffer], size: int, cores: int) -> list[_Cut]:
    """The cuts with the fewest blocks whose stages fit in the cache, as many for each core where that is possible.

    They cut the axis of the output that is the slowest index of the largest stage that ``last`` reads, or the next one
    inside of it where one position of that axis is too much. The stages' tensors are ``written``; those of sums have
    ``size`` bytes.
    """
    read = [
        (math.prod(int(size) for size in tensor.shape), indices)
        for tensor, indices in zip(last.read, last.factors, strict=True)
        if any(tensor.same_as(one) for one in written)
    ]
    largest = max(read, key=lambda one: one[0])[1]
    outer = [n for n in last.stored[:-1] if n is not None and last.sizes[n] > 1]
    axes = [n for index in largest for n in outer if moves([index], last.variables[n])]
    for depth, axis in enumerate(axes):
        whole = math.prod(last.sizes[n] for n in axes[:depth])
        cuts = [
            _Cut(tuple(axes[:depth]), axis, rows, whole * last.sizes[axis] // rows)
            for rows in divisors(last.sizes[axis], last.sizes[axis])
        ]
        cuts = [one for one in cuts if one.blocks >= max(cores, 2) and size <= _MOST_BYTES * one.blocks]
        if cuts:
            cuts.sort(key=lambda one: (one.blocks % cores > 0, one.blocks))
            return cuts[:_MOST_CUTS]
    return []
