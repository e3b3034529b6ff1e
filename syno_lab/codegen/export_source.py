"""Export to a Python file that needs torch alone: the module, its operator, and a self-check."""

from __future__ import annotations

import textwrap

import numpy as np

from syno_lab.codegen.export_check import batch_axes, checked_binding, expected, filled, torch_module
from syno_lab.codegen.export_record import compact_json
from syno_lab.codegen.torch_module import to_torch_source
from syno_lab.generated import fill
from syno_lab.ir.operator import Operator as PGraph
from syno_lab.protocol import Binding, Operator
from syno_lab.systems import system_of

_WIDTH = 100
_PROBES = 12
_SUMMED_WITH = 7  # the number of the tensor that multiplies the output in the checked sum

_CHECK = '''

def filled(shape, number):
    """Integers from -5 to 5 in float64; ``number`` tells the tensors apart."""
    size = 1
    for n in shape:
        size *= n
    i = torch.arange(size, dtype=torch.int64) % 9973
    return ((31 * i * i + 17 * i + 5 * number) % 11 - 5).to(torch.float64).reshape(shape)


def self_check():
    """Compare the module with numbers that were computed from the operator; raises AssertionError."""
    module = SynoOperator().double().eval()
    with torch.no_grad():
        for number, shape in enumerate(WEIGHT_SHAPES, 1):
            getattr(module, f"weight_{number}").copy_(filled(shape, number))
        y = module(filled(CHECK_INPUT, 0))
    assert tuple(y.shape) == CHECK_OUTPUT, f"expected an output of shape {CHECK_OUTPUT}, found {tuple(y.shape)}"
    found = [y.reshape(-1)[place].item() for place in CHECK_PLACES] + [(y * filled(y.shape, SUMMED_WITH)).sum().item()]
    for name, a, b in zip([*CHECK_PLACES, "the sum"], found, CHECK_VALUES, strict=True):
        tolerance = SUM_TOLERANCE if name == "the sum" else TOLERANCE
        assert abs(a - b) <= tolerance, f"{name}: expected {b}, found {a}"


if __name__ == "__main__":
    self_check()
    print("agrees with the operator it was made from")
'''


def standalone_source(operator: Operator, binding: Binding | None = None, *, scale: float = 1.0) -> str:
    """Return the text of a Python file with the class ``SynoOperator(nn.Module)``, for projects without Syno Lab.

    The file states shapes, parameters and FLOPs. The file holds the operator as the constants ``OPERATOR_JSON`` and
    ``BINDING`` (:func:`syno_lab.systems.read_operator` reads the first). When run, the file compares its output with
    numbers of the operator's reference, or of the float64 module if the reference would take long.

    Args:
        operator: the operator.
        binding: the sizes of the operator; axes that the spec fixes take any size.
        scale: a constant factor outside the pGraph, as in ``to_torch``.

    Raises SpecError when the binding leaves a size open or fractional; ExportError if ``scale`` is not 1
    and the operator is no pGraph.
    """
    bound = operator.complete_binding(binding)
    checked = checked_binding(operator, bound)
    shapes = operator.weight_sizes(bound)
    x = filled(operator.input_sizes(checked), 0)
    weights = [filled(shape, number) for number, shape in enumerate(shapes, 1)]
    y, source_of_numbers = _numbers(operator, checked, x, weights, scale)
    flat = y.reshape(-1)
    places = sorted({int(p) for p in np.linspace(0, flat.size - 1, min(_PROBES, flat.size))})
    values = [float(flat[place]) for place in places]
    values.append(float(np.sum(y * filled(y.shape, _SUMMED_WITH))))
    batch = set(batch_axes(operator))
    sizes = ", ".join("batch" if a in batch else str(n) for a, n in enumerate(operator.input_sizes(bound)))
    pgraph = operator if isinstance(operator, PGraph) else None
    outputs = operator.output_sizes(bound)
    is_batch = [c in pgraph.state.fixed for c in pgraph.output] if pgraph else [False] * len(outputs)
    result = ", ".join("batch" if is_fixed else str(n) for n, is_fixed in zip(outputs, is_batch, strict=True))
    text = compact_json(operator)
    summary = "a linear operator synthesised by Syno Lab" if pgraph else f"an operator of {system_of(operator).title}"
    head = [
        f'"""[{sizes}] -> [{result}]: {summary}, as a PyTorch module.',
        "",
        f"    {'in symbols ' if pgraph else 'operator   '} {operator}",
        f"    weights     {', '.join(str(list(shape)) for shape in shapes) or 'none'}",
        f"    parameters  {operator.params(bound)}",
        f"    FLOPs       {operator.flops(bound)} at {', '.join(f'{n}={v}' for n, v in bound.items())}",
        f"    constant    {scale!r} (a factor outside the operator)",
        "",
        "Needs torch alone. Run it to check it against numbers of the operator it was made from.",
        '"""',
        "",
    ]
    constants = [
        "",
        "",
        "# The operator itself: syno_lab.Operator.from_json(OPERATOR_JSON) is its pGraph."
        if pgraph
        else "# The operator itself: syno_lab.systems.read_operator(OPERATOR_JSON).",
        "OPERATOR_JSON = (",
        *(f"    {text[start : start + _WIDTH]!r}" for start in range(0, len(text), _WIDTH)),
        ")",
        f"BINDING = {bound!r}",
        "",
        f"# For the check, by the {source_of_numbers}.",
        f"WEIGHT_SHAPES = {list(shapes)!r}",
        f"CHECK_INPUT = {x.shape!r}",
        f"CHECK_OUTPUT = {y.shape!r}",
        f"CHECK_PLACES = {places!r}",
        *textwrap.wrap(f"CHECK_VALUES = {values!r}", _WIDTH, subsequent_indent="    "),
        f"TOLERANCE, SUM_TOLERANCE = {1e-10 * float(np.abs(y).max()):.3g}, {1e-12 * float(np.abs(y).sum()):.3g}",
    ]
    source = to_torch_source(pgraph, bound, scale=scale) if pgraph else operator.to_torch_source(bound)
    return "\n".join([*head, source.rstrip("\n"), *constants]) + "\n" + _CHECK.replace("SUMMED_WITH", str(_SUMMED_WITH))


def _numbers(
    operator: Operator, binding: Binding, x: np.ndarray, weights: list[np.ndarray], scale: float
) -> tuple[np.ndarray, str]:
    import torch

    with torch.random.fork_rng(devices=[]):
        module = fill(torch_module(operator, binding, scale).double(), weights)
    return expected(operator, binding, module, x, weights, scale)
