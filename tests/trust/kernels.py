"""Trust in Canvas: random kernels whose NumPy meaning, PyTorch module, TVM code, file and key must agree.

Kernels are drawn by ``sl.canvas.Sampler`` for small places of several kinds: equal and different channels, strides,
windows of 1 to 5, with groups and without. The source of each check goes into the program that shows a failure.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import canvas_isomorphism
import numpy as np
from canvas_isomorphism import changed, graph, isomorphic, renumbered

from syno_lab.canvas.files import from_json
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.kernel import Kernel, Node, key_of
from syno_lab.canvas.places import Place
from syno_lab.canvas.primitives import PRIMITIVES
from syno_lab.canvas.sampler import Sampler
from syno_lab.errors import PrimitiveError, SpecError
from trust.checks import TOLERANCE, difference, torch_module
from trust.harness import Subject
from trust.programs import written
from trust.sources import Case

#: Kernels drawn for one place before there is another.
BLOCK = 20
#: Attempts to draw these: the budget of a place of few pixels may leave hardly any kernel.
ATTEMPTS = 600
#: Kernels are computed in NumPy, and networks of loops of TVM compiled.
MAX_MEMORY = 1 << 19
#: Above it there are no digits to compare: exp of exp, or a product of such.
LARGEST = 1e30
#: By how much a number of float64 changes in its last digits, relative to it.
LAST_DIGIT = 1e-15
#: How many operators had no digits to compare, by the check.
NOT_COMPARED: Counter[str] = Counter()
COMMAND = (sys.executable, str(Path(__file__).parent / "kernels_child.py"))


@dataclass(frozen=True)
class KernelCase(Case):
    """A kernel of a run."""

    @cached_property
    def operator(self) -> Fitted:  # type: ignore[override]
        """Read from the text, so that what is checked is what is printed."""
        return from_json(self.text)


#: The channels of a place by its kind, as multiples of C.
KINDS = {"equal channels": (1, 1), "parts that are averaged": (3, 1), "parts that are concatenated": (1, 2)}


def cases(seed: int) -> Iterator[KernelCase]:
    """Kernels without end, the kinds of places in turn."""
    rng = random.Random(f"canvas {seed}")
    for number in count():
        kind = list(KINDS)[number % len(KINDS)]
        stride = 1 + number // len(KINDS) % 2
        into, out = KINDS[kind]
        channels = rng.choice((2, 4, 6, 8))
        sizes = (into * channels, out * channels, rng.choice((1, 2, 3, 4)), rng.choice((3, 5, 6)))
        place = Place(*sizes, rng.choice((1, 3, 5)), rng.choice((1, 3, 3)), stride)
        sampler = Sampler(
            [place],
            max_flops=rng.choice((None, 2, 4)),
            primitives=(2, 10),
            normalise=rng.random() < 0.5,
            prefers_free=rng.random() < 0.5,
            must_mix=False,
            seed=rng.getrandbits(32),
        )
        left = BLOCK
        for _ in range(ATTEMPTS):
            operator = sampler.attempt().fitted
            if operator is None or operator.memory() > MAX_MEMORY:
                continue
            source = f"{kind}, stride {stride}"
            yield KernelCase(operator.to_json(), operator.complete_binding(), rng.getrandbits(32), source)
            left -= 1
            if not left:
                break


# -- checks ------------------------------------------------------------------------------------------------------------


def arrays(operator: Any, binding: dict[str, int], seed: int) -> list[np.ndarray]:
    """A random input and random weights in float64, as large as a network has them."""
    rng = np.random.default_rng(seed)
    sizes = operator.weight_sizes(binding)
    weights = [rng.normal(size=size) / (size[-1] ** 0.5 if len(size) == 3 else 1) for size in sizes]
    return [rng.normal(size=operator.input_sizes(binding)), *weights]


def is_steep(operator: Any, binding: dict[str, int], numbers: list[np.ndarray], want: np.ndarray) -> bool:
    """Whether the meaning itself changes where its arguments change in the last digits: sin of a number of 10^9."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        near = [one * (1 + LAST_DIGIT * rng.choice((-1, 1), size=one.shape)) for one in numbers]
        with np.errstate(over="ignore", invalid="ignore"):
            if not difference(operator.reference(*near, binding=binding), want) <= TOLERANCE / 100:
                return True
    return False


def values(operator: Any, binding: dict[str, int], seed: int) -> str | None:
    """The torch module gives the meaning's output, at a batch larger by one than it was made for."""
    import torch

    larger = binding | {"N": binding["N"] + 1}
    x, *weights = arrays(operator, larger, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        want = operator.reference(x, *weights, binding=larger)
    if not np.abs(want).max() < LARGEST:
        NOT_COMPARED["values"] += 1
        return None
    given = torch.from_numpy(x.copy())
    with torch.no_grad():
        found = torch_module(operator, binding, weights).eval()(given).numpy()
    if not np.array_equal(given.numpy(), x):
        return "the torch module changes its input"
    error = difference(found, want)
    if not error <= TOLERANCE and is_steep(operator, larger, [x, *weights], want):
        NOT_COMPARED["values"] += 1
        return None
    return None if error <= TOLERANCE else f"torch differs from the meaning by {error:.3g}"


def meaning(operator: Any, binding: dict[str, int], x: Any, weights: Any, is_training: bool) -> Any:
    """What an operator computes, in plain PyTorch: an axis for each of the six slots, one part after the other."""
    import math

    import torch
    from torch.nn import functional as F

    from syno_lab.canvas.primitives import BROADCASTS, SHIFTS, UNFOLDS, axes_of, parts_of
    from syno_lab.canvas.reference import EPSILON
    from syno_lab.canvas.shape import SLOTS

    place, bound = operator.template(binding)
    kernel, images = operator.kernel, len(x)
    axis = {slot: number for number, slot in enumerate(SLOTS, start=1)}
    one = {
        "group": lambda a: a,
        "relu": torch.relu,
        "gelu": lambda a: a * (1 + torch.erf(a / math.sqrt(2))) / 2,
        "sigmoid": lambda a: 1 / (1 + torch.exp(-a)),
        "tanh": torch.tanh,
        "abs": torch.abs,
        "exp": torch.exp,
        "neg": torch.neg,
        "sin": lambda a: torch.sin(a * math.pi / 2),
    }
    two = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "min": torch.minimum, "max": torch.maximum}

    def windows(a: Any, slot: str) -> Any:
        size, window = a.shape[axis[slot]], bound[f"K{slot}"]
        edge = [window // 2] * 2
        padded = F.pad(a, edge if slot == "W" else [0, 0, *edge])
        return torch.cat([padded.narrow(axis[slot], k, size) for k in range(window)], axis[f"K{slot}"])

    def applied(name: str, parameter: str, inputs: list[Any], shapes: tuple[Any, ...], weight: Any) -> Any:
        a = inputs[0]
        if name == "fc":
            grouped = a.reshape(images, a.shape[1], -1, *a.shape[5:])
            return torch.einsum("ngihw,goi->ngohw", grouped, weight)
        if name in BROADCASTS:
            prefix, repeats, lhs, suffix = (size.at(bound) for size in parts_of(parameter, *shapes))
            left, right = (side.reshape(images, prefix, -1, lhs, suffix) for side in inputs)
            return two[name](left.expand(-1, -1, repeats, -1, -1), right)
        if name == "shift":
            for slot, offset in SHIFTS[parameter]:
                a = torch.roll(a, offset, axis[slot])
            return a
        if name == "unfold":
            for slot in UNFOLDS[parameter]:
                a = windows(a, slot)
            return a
        if name == "fold_avg":
            return a.mean(axis[parameter])
        if name == "fold_max":
            return a.amax(axis[parameter])
        if name == "softmax":
            slots = [axis[slot] for slot in axes_of(parameter)]
            powers = torch.exp(a - a.detach().amax(slots, keepdim=True))
            return powers / powers.sum(slots, keepdim=True)
        return one[name](a)

    def template(block: Any, own: Any) -> Any:
        waiting = iter(own)
        tensors = [block.reshape(images, *kernel.shapes[0].at(bound))]
        for number, ((primitive, inputs), shape) in enumerate(zip(kernel.nodes, kernel.shapes[1:], strict=True), 1):
            weight = next(waiting) if primitive.name == "fc" else None
            given, shapes = [tensors[i] for i in inputs], tuple([kernel.shapes[i] for i in inputs])
            found = applied(*primitive, given, shapes, weight).reshape(images, *shape.at(bound))
            if number in kernel.normalised:
                scale, offset = (next(waiting).reshape(-1, 1, 1, 1, 1) for _ in range(2))
                mean, var = found.new_tensor(0.0), found.new_tensor(1.0)
                if is_training:
                    mean = found.mean((0, 5, 6), keepdim=True)
                    var = ((found - mean) ** 2).mean((0, 5, 6), keepdim=True)
                found = (found - mean) / torch.sqrt(var + EPSILON) * scale + offset
                found = torch.relu(found) if kernel.normalised[number] else found
            tensors.append(found)
        return tensors[-1].reshape(images, place.channels, place.h, place.w)

    step = place.stride
    x = x.reshape(images, place.c_in, place.h, step, place.w, step).mean((3, 5))
    blocks = x.chunk(place.parts, 1) if place.c_in > place.c_out else [x] * place.parts
    split = [weight.chunk(place.parts) for weight in weights]
    found = [template(block, [own[part] for own in split]) for part, block in enumerate(blocks)]
    return torch.stack(found).mean(0) if place.c_in > place.c_out else torch.cat(found, 1)


def plain(
    operator: Any, binding: dict[str, int], numbers: list[np.ndarray], g: np.ndarray, is_training: bool
) -> list[np.ndarray]:
    """The output of the meaning in PyTorch, and the gradients of <output, g> by the input and each weight."""
    import torch

    leaves = [torch.from_numpy(one.copy()).requires_grad_() for one in numbers]
    result = meaning(operator, binding, leaves[0], leaves[1:], is_training)
    (result * torch.from_numpy(g)).sum().backward()
    return [result.detach().numpy(), *(np.zeros(()) if one.grad is None else one.grad.numpy() for one in leaves)]


def gradients(operator: Any, binding: dict[str, int], seed: int) -> str | None:
    """The module's output and gradients are those of the meaning in plain PyTorch, and that is the one in NumPy.

    Where a normalisation in training divides by hardly anything, or a maximum is taken of numbers that differ by
    rounding alone, gradients have no digits to compare: the meaning's own change, by a hundredth of the tolerance or
    more, where its arguments change in the last digits. These cases are counted.
    """
    import torch

    larger = binding | {"N": binding["N"] + 1}
    numbers = arrays(operator, larger, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        want = operator.reference(*numbers, binding=larger)
    if not np.abs(want).max() < LARGEST:
        NOT_COMPARED["gradients"] += 1
        return None
    rng = np.random.default_rng(seed + 1)
    g = rng.normal(size=want.shape)
    names = ["the output", "the gradient by the input"]
    names += [f"the gradient by weight {number}" for number in range(1, len(numbers))]
    for is_training in (False, True) if operator.kernel.normalise else (False,):
        module = torch_module(operator, binding, numbers[1:]).train(is_training)
        leaf = torch.from_numpy(numbers[0].copy()).requires_grad_()
        result = module(leaf)
        (result * torch.from_numpy(g)).sum().backward()
        leaves = [leaf, *(getattr(module, f"weight_{number}") for number in range(1, len(numbers)))]
        found = [result.detach().numpy(), *(np.zeros(()) if one.grad is None else one.grad.numpy() for one in leaves)]
        meant = plain(operator, binding, numbers, g, is_training)
        if not is_training and not (error := difference(meant[0], want)) <= TOLERANCE:
            return f"the meaning in PyTorch differs from that in NumPy by {error:.3g}"
        errors = [difference(*np.broadcast_arrays(*pair)) for pair in zip(found, meant, strict=True)]
        worst = max(range(len(errors)), key=lambda number: (np.isnan(errors[number]), errors[number]))
        if errors[worst] <= TOLERANCE:
            continue
        for _ in range(3):
            near = [one * (1 + LAST_DIGIT * rng.choice((-1, 1), size=one.shape)) for one in numbers]
            pairs = zip(plain(operator, binding, near, g, is_training), meant, strict=True)
            if max(difference(*np.broadcast_arrays(*pair)) for pair in pairs) > TOLERANCE / 100:
                NOT_COMPARED["gradients"] += 1
                return None
        mode = "training" if is_training else "use"
        return f"{names[worst]} differs from the meaning's by {errors[worst]:.3g} in {mode}"
    return None


def compiled(operator: Any, binding: dict[str, int], seed: int) -> float:
    """How far compiled TVM code is from the meaning; not-a-number where it leaves elements unwritten."""
    import tvm

    numbers = arrays(operator, binding, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        want = operator.reference(*numbers, binding=binding)
    if not np.abs(want).max() < LARGEST:
        return 0.0
    buffers = [tvm.runtime.tensor(a) for a in (*numbers, np.full(want.shape, np.nan))]
    tvm.compile(operator.to_tvm(binding, "float64"), target="llvm")["main"](*buffers)
    *inputs, found = (b.numpy() for b in buffers)
    assert all(np.array_equal(a, b) for a, b in zip(numbers, inputs, strict=True)), "the code changes its arguments"
    error = difference(found, want)
    return 0.0 if not error <= TOLERANCE and is_steep(operator, binding, numbers, want) else error


def tvm_values(operator: Any, binding: dict[str, int], seed: int) -> str | None:
    """Compiled TVM code gives the meaning's output and writes nothing else."""
    error = compiled(operator, binding, seed)
    return None if error <= TOLERANCE else f"TVM differs from the meaning by {error:.3g}"


def files_and_keys(operator: Any, binding: dict[str, int], seed: int) -> str | None:
    """A file gives the operator back; a renumbered kernel has its key, and a changed one where networkx says so."""
    again = from_json(operator.to_json())
    if again != operator or again.to_json() != operator.to_json() or again.kernel.shapes != operator.kernel.shapes:
        return "what was written and read is another operator"
    rng, draft = random.Random(seed), operator.kernel.draft
    key = key_of(draft)
    if key_of(renumbered(draft, rng)) != key:
        return "a renumbered kernel has another key"
    for _ in range(3):
        other = changed(renumbered(draft, rng), rng)
        if (key_of(other) == key) != isomorphic(draft, other):
            return f"keys are {'equal' if key_of(other) == key else 'different'}, and networkx says otherwise: {other}"
    return None


def renumberings(texts: list[str], times: int, seed: int) -> int:
    """How many of so many renumberings of each kernel have another key than it."""
    rng, wrong = random.Random(seed), 0
    for text in texts:
        draft = from_json(text).kernel.draft
        key = key_of(draft)
        wrong += sum(key_of(renumbered(draft, rng)) != key for _ in range(times))
    return wrong


def pairs(texts: list[str], most: int = 20) -> dict[str, int]:
    """Pairs among kernels whose keys and networkx say different things.

    Those with one key are compared with the first of them, and those with the same primitives but different keys with
    ``most`` of the others.
    """
    by_key: dict[str, list[Any]] = defaultdict(list)
    for text in texts:
        kernel = from_json(text).kernel
        by_key[kernel.key].append(kernel)
    found = {"kernels": len(texts), "keys": len(by_key), "compared": 0, "wrong": 0}
    alike: dict[Any, list[Any]] = defaultdict(list)
    for first, *others in by_key.values():
        for other in others:
            found["compared"] += 1
            found["wrong"] += first.normalise != other.normalise or not isomorphic(first.draft, other.draft)
        labels = sorted(str(label) for _, label in graph(first.draft).nodes(data="label"))
        alike[first.normalise, tuple(labels)].append(first.draft)
    for drafts in alike.values():
        for place, draft in enumerate(drafts):
            for other in drafts[place + 1 : place + 1 + most]:
                found["compared"] += 1
                found["wrong"] += isomorphic(draft, other)
    return found


# -- corners -----------------------------------------------------------------------------------------------------------

_MORE: dict[str, Callable[[Fitted, Any, dict[str, int]], bool]] = {
    "normalised": lambda operator, place, bound: operator.kernel.normalise,
    "a dynamic variable": lambda operator, place, bound: bool(operator.kernel.free),
    "G": lambda operator, place, bound: "G" in operator.kernel.variables,
    "several parts": lambda operator, place, bound: place.parts > 1,
    "a stride": lambda operator, place, bound: place.stride > 1,
    "a window of 1": lambda operator, place, bound: place.kh == 1 or place.kw == 1,
    "one row": lambda operator, place, bound: place.h == 1,
    "an FC behind an unfold": lambda operator, place, bound: any(
        node.primitive.name == "fc" and operator.kernel.nodes[node.inputs[0] - 1].primitive.name in ("unfold", "group")
        for node in operator.kernel.nodes
        if node.inputs[0]
    ),
    "an output that is viewed": lambda operator, place, bound: len(operator.kernel.shapes[-1].sizes) != 3,
}
NAMES = (*PRIMITIVES, *_MORE)


def corners(operator: Fitted, binding: dict[str, int]) -> frozenset[str]:
    """The primitives that an operator has, and what else it is."""
    place, bound = operator.template(binding)
    found = {name for name, holds in _MORE.items() if holds(operator, place, bound)}
    return frozenset(found | {node.primitive.name for node in operator.kernel.nodes})


# -- shrinking ---------------------------------------------------------------------------------------------------------


def shrink(case: KernelCase, fails: Callable[[KernelCase], bool]) -> KernelCase:
    """The case with the fewest nodes, then the smallest sizes, that greedy changes lead to and that still fails."""
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: KernelCase) -> Iterator[KernelCase]:
    operator = case.operator
    for kernel in _fewer_nodes(operator.kernel):
        outer = {name: number for name, number in case.binding.items() if not name.startswith("x") and name != "G"}
        yield from _at(case, Fitted(kernel, operator.groups), outer)
    if operator.kernel.normalise:
        yield from _at(case, Fitted(replace(operator.kernel, normalise=False), operator.groups), case.binding)
    for name, number in case.binding.items():
        for fewer in {1, 2, 3, number // 2, number - 1} - {0, number}:
            if fewer < number:
                yield from _at(case, operator, case.binding | {name: fewer})


def _at(case: KernelCase, operator: Fitted, binding: dict[str, int]) -> Iterator[KernelCase]:
    """The case with this operator and binding, where it has whole sizes there."""
    try:
        bound = operator.complete_binding(binding)
        yield replace(case, text=Fitted(operator.kernel, operator.groups).to_json(), binding=bound)
    except SpecError:
        return


def _fewer_nodes(kernel: Kernel) -> Iterator[Kernel]:
    """Kernels whose output is an earlier tensor, or in which an earlier tensor takes the place of one."""
    for output in range(len(kernel.nodes)):
        yield from _pruned(kernel.nodes, output, kernel.normalise)
    for tensor in range(len(kernel.nodes), 0, -1):
        for other in range(tensor):
            nodes = [
                Node(node.primitive, tuple([other if number == tensor else number for number in node.inputs]))
                for node in kernel.nodes
            ]
            yield from _pruned(tuple(nodes), len(nodes), kernel.normalise)


def _pruned(nodes: tuple[Node, ...], output: int, normalise: bool) -> Iterator[Kernel]:
    """The kernel of what an output is computed from, where that is a kernel of fewer nodes."""
    needed = {output}
    for tensor in range(output, 0, -1):
        if tensor in needed:
            needed |= set(nodes[tensor - 1].inputs)
    numbers = {tensor: place for place, tensor in enumerate(sorted(needed | {0}))}
    kept = [nodes[tensor - 1] for tensor in numbers if tensor]
    if len(kept) == len(nodes):
        return
    try:
        yield Kernel(
            tuple([Node(node.primitive, tuple([numbers[n] for n in node.inputs])) for node in kept]), normalise
        )
    except PrimitiveError:
        return


#: What the functions of ``canvas_isomorphism`` need.
_IMPORTS = inspect.getsource(canvas_isomorphism).partition("annotations\n")[2].partition("\n\n\n")[0].strip()


def program(check: Callable[..., str | None], case: Case, complaint: str) -> str:
    """Python source that shows a failure."""
    needed: list[Callable[..., object]] = [difference, arrays]
    needed += {
        values: [torch_module, is_steep],
        gradients: [torch_module, meaning, plain],
        tvm_values: [is_steep, compiled],
        files_and_keys: [renumbered, changed, graph, isomorphic],
    }[check]
    imports = "from syno_lab.canvas.files import from_json"
    if check is files_and_keys:
        imports = f"{_IMPORTS}\n{imports}\nfrom syno_lab.canvas.kernel import key_of"
    text = written(
        [*needed, check], case, complaint, imports, "from_json", "operator.kernel", uses_tvm=check is tvm_values
    )
    ours = (
        f"from collections import Counter\n\nLARGEST, LAST_DIGIT, NOT_COMPARED = {LARGEST!r}, {LAST_DIGIT!r}, Counter()"
    )
    return text.replace("TOLERANCE =", f"{ours}\nTOLERANCE =", 1)


KERNELS = Subject(
    {"values": values, "gradients": gradients, "tvm": tvm_values, "files and keys": files_and_keys},
    corners,
    NAMES,
    lambda operator: len(operator.kernel.nodes),
    shrink,
    program,
)
