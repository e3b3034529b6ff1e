"""The portrait of an operator: what it reads, mixes, takes and gives up, in sentences that are made from figures.

What it reads comes from gradients for random weights (:func:`.panes.reach.gradients`), which are exact for an operator
that is linear in its input. A sentence whose figure is missing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from syno_lab.common.reach import ranges
from syno_lab.errors import SynoError
from syno_lab.inputs import count_of, printable
from syno_lab.panes import Asked, panes_of, read_pane
from syno_lab.panes.reach import gradients
from syno_lab.protocol import Binding, Mixing, OfLayers, Operator
from syno_lab.store.latencies import TIMES
from syno_lab.store.outcomes import Comparison
from syno_lab.store.verdicts import Verdict, sentence, slower
from syno_lab.systems import system_of

#: The most output channels whose gradients are computed.
MOST_CHANNELS = 64
_RANKS = {"space": "positions", "outputs": "output channels", "inputs": "input channels"}
HEADINGS = (
    *("What it reads and mixes", "Why it trains", "Its accuracy and times", "Its nearest known relative"),
    "What it gives up",
)
_LEAST_RANK = 0.9  # a smaller share of the effective rank is given up
_WINDOW = (-1, 0, 1)


class Reading(NamedTuple):
    """What the output elements in the middle of a layer read, for random weights.

    Attributes:
        channels: whether an output channel reads an input channel [outputs, inputs].
        offsets: by the name of each axis of positions: what any channel reads, counted from the element's own position.
    """

    channels: Any
    offsets: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, operator: Operator, binding: Binding) -> Reading | None:
        """Return what an operator on [batch, channels, positions...] reads.

        None for a whole network, more than :data:`MOST_CHANNELS` output channels, and where no gradient is finite.
        """
        if "reach" not in panes_of(operator):
            return None
        (_, outputs, *lengths), (_, _, *sides) = operator.output_sizes(binding), operator.input_sizes(binding)
        if outputs > MOST_CHANNELS or len(lengths) != len(sides):
            return None
        asked, middle = Asked(operator, binding=tuple(binding.items())), [length // 2 for length in lengths]
        with suppress(SynoError):
            each = [gradients(operator, (0, channel, *middle), asked).any(axis=0) for channel in range(outputs)]
            read, offsets = np.stack(each), {}
            for axis, (side, length) in enumerate(zip(sides, lengths, strict=True), start=2):
                used = np.flatnonzero(read.any(axis=tuple(other for other in range(read.ndim) if other != axis)))
                name = ("rows", "columns")[axis - 2] if len(sides) == 2 else f"positions of axis {axis}"
                offsets[name] = tuple(int(place) - length // 2 * side // length for place in used)
            return cls(read.reshape(*read.shape[:2], -1).any(axis=2), offsets)
        return None

    def sentences(self) -> Iterator[str]:
        """Yield what an element reads, how the channels are mixed, and what such layers in sequence mix."""
        channels, total, counts = self.channels, self.channels.shape[1], self.channels.sum(axis=1)
        least, most, kinds = int(counts.min()), int(counts.max()), np.unique(channels, axis=0)
        number = "all" if least == total else f"{most} of" if least == most else f"{least} to {most} of"
        parts = [f"{len(at)} {name} ({ranges(at)} from its own)" for name, at in self.offsets.items()]
        yield f"Each output element reads {', '.join([f'{number} {total} input channels', *parts])}."
        if least == total:
            yield "Every output channel mixes all input channels."
            return
        if len(kinds) == 1:
            yield "All output channels read the same input channels."
        elif most == 1:
            yield "No output channel mixes input channels."
        elif kinds.sum(axis=0).max() == 1:
            apart = "different groups" if (channels[0] != channels[1]).any() else "the same group"
            yield f"The input channels form {len(kinds)} groups, and adjacent output channels read {apart}."
        else:
            yield f"The output channels read {len(kinds)} different sets of input channels, which overlap."
        if len(counts) == total:
            reached = [channels]
            while not reached[-1].all() and len(reached) < total:
                reached.append(reached[-1] @ channels)
            most = max(int(one.sum(axis=1).max()) for one in reached)
            some = f"{len(reached)} such layers in sequence mix all" if reached[-1].all() else ""
            yield f"{some or f'Any number of such layers in sequence mixes at most {most} of'} {total} channels."


def portrait(
    operator: Operator, binding: Binding, final: Comparison | None = None, rivals: Mapping[str, Comparison] = {}
) -> dict[str, list[str]]:
    """Return the sentences about an operator by their headings, without headings that have no sentence.

    Args:
        operator: an operator of any system; of a whole network, what it reads is not said.
        binding: the sizes of a layer that it replaces.
        final: its finals.
        rivals: the finals of its rivals, by their titles.
    """
    reading, system, panes = Reading.of(operator, binding), system_of(operator), {}
    for name in {"kernel", "near"} & panes_of(operator).keys():
        with suppress(SynoError):  # the kernel may be too large
            panes[name] = read_pane(Asked(operator), name)
    said: dict[str, list[str]] = {heading: [] for heading in HEADINGS}
    reads, trains, figures, related, lacks = said.values()
    layer = "convolution with a window of 3" if reading is None or reading.offsets else "linear layer"
    if reading is not None:
        reads += reading.sentences()
        total, most = reading.channels.shape[1], reading.channels.sum(axis=1).max()
        if isinstance(system, Mixing) and system.is_linear(operator):
            trains.append("It is linear in its input, so its gradient does not depend on the input's values.")
        tensors, used = count_of(len(operator.weight_sizes(binding)), "tensor"), reading.channels.any(axis=0).sum()
        sizes = ", ".join(f"{name}={size}" for name, size in binding.items())
        trains.append(f"It has {operator.params(binding):,} parameters in {tensors} in a layer with {sizes}.")
        trains.append(f"The gradient reaches {used} of {total} input channels.")
        if most < total:
            lacks.append(f"A {layer} mixes all {total} input channels in one layer, this operator at most {most}.")
        for axis, at in reading.offsets.items():
            if missing := tuple(place for place in _WINDOW if place not in at):
                lacks.append(f"It does not read the {axis} {ranges(missing)} from its own.")
    if "kernel" in panes:
        shares = [(words, panes["kernel"]["shares"][name]) for name, words in _RANKS.items()]
        ranks = ", ".join(f"{share:.0%} over the {words}" for words, share in shares)
        trains.append(f"Its kernel for random weights has, of the effective rank of a {layer}, {ranks}.")
        less = [words for words, share in shares if round(share, 2) < _LEAST_RANK]
        lacks += [
            f"The effective rank of its kernel over the {words} is less than that of a {layer}." for words in less
        ]
    if known := system.recognise(operator):
        related.append(f"It is a known operator: {known}.")
    elif "near" in panes and isinstance(system, OfLayers):
        near = panes["near"]["rows"][0]
        name, parts = near["name"], [text.rpartition(" (")[0] for text in near["differences"][:2]]
        related.append(f"{name}, {near['distance']:.2f} steps away: {'; '.join(parts) or 'no step differs'}.")
        with suppress(SynoError):
            other, shapes = system.known[name](), (operator.input_sizes(binding), operator.output_sizes(binding))
            theirs = Reading.of(other, system.binding_for(other, binding, *shapes))
            related += [f"Of {name}: {text}" for text in (theirs.sentences() if theirs else ()) if text not in reads]
    if final is not None and final.by is not None:
        figures.append(f"The verdict of the finals: {sentence(final)}.")
        figures += [_figures(title, one) for title, one in {"it": final, **rivals}.items()]
        if final.verdict == Verdict.worse:
            lacks.append(f"In the finals it differs from the baseline by {final.texts[0]}.")
        if slower(final.times, final.baseline_times, *TIMES):
            lacks.append("It is slower than the network as it is.")
    return {heading: sentences for heading, sentences in said.items() if sentences}


def _figures(title: str, one: Comparison) -> str:
    """Say what the network with an operator or a rival reaches and takes, beside the network as it is."""
    numbers = [f"{one.measure} {one.operator or 0:.3f} (as it is {one.baseline or 0:.3f})"]
    numbers.append(f"{one.flops_ratio:.3f} of the FLOPs, {one.params_ratio:.3f} of the parameters")
    for name in (name for name in TIMES if one.times.get(name) and one.baseline_times.get(name)):
        base, mark = one.baseline_times[name], ", slower" if slower(one.times, one.baseline_times, name) else ""
        numbers.append(f"{one.times[name]:.3g} ms for a {TIMES[name]} (as it is {base:.3g}{mark})")
    return f"With {printable(title)}, on {count_of(len(one.seeds), 'seed')}: {', '.join(numbers)}."
