"""A complete pGraph: a linear operator as an immutable value (Syno, sections 4 and 5).

Methods compute costs, loop nests, modules and pictures. The packages for these results are loaded at the first call
(:mod:`syno_lab.later`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from syno_lab.common.size import shape_text, value
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.spec import Binding, Spec
from syno_lab.ir.state import Drawn, Key, State, Step, Weight, canonical_key
from syno_lab.later import later

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn
    from tvm import IRModule
    from tvm.target import Target

    from syno_lab.common.wants import Wish
    from syno_lab.effort import Stop
    from syno_lab.later import (
        Coordinates,
        Equation,
        Exported,
        Figure,
        KernelPack,
        LibraryRecord,
        Mixing,
        ReceptiveField,
    )

FORMAT = "syno-lab-operator"


@dataclass(frozen=True, eq=False)
class Operator(Drawn):
    """``Y[output] = sum over reductions of X[inputs] * W1[...] * ...``, zero where an UNFOLD is out of bounds.

    Attributes:
        state: the complete state of the operator.
        inputs: the coordinate that indexes each axis of the input.
    """

    format: ClassVar[str] = FORMAT
    pools_in: ClassVar[Literal["pooled"]] = "pooled"

    state: State
    inputs: tuple[Coordinate, ...]

    @property
    def spec(self) -> Spec:
        """Return the spec that the operator was built for."""
        return self.state.spec

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the spec's variables, primaries first."""
        return self.spec.symbols.names

    @property
    def output(self) -> tuple[Coordinate, ...]:
        """Return the output iterators, one for each axis."""
        return self.state.output

    @property
    def reductions(self) -> tuple[Coordinate, ...]:
        """Return the reduction iterators."""
        return self.state.reductions

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Return the weights, in the order of :meth:`reference` and of the modules."""
        return self.state.weights

    @property
    def expanded(self) -> tuple[Coordinate, ...]:
        """Return the coordinates dropped by EXPAND."""
        return self.state.expanded

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps that built the operator, from the output on."""
        return self.state.steps

    def complete_binding(self, binding: Binding | None = None) -> dict[str, int]:
        """Complete ``binding`` by the spec's defaults; None means the spec's first binding."""
        if binding is None and self.spec.bindings:
            return dict(self.spec.bindings[0])
        return self.spec.complete_binding(binding or {})

    def input_sizes(self, binding: Binding | None = None) -> tuple[int, ...]:
        """Return the input's shape for a binding."""
        bound = self.complete_binding(binding)
        return tuple(c.size.at(bound) for c in self.inputs)

    def output_sizes(self, binding: Binding | None = None) -> tuple[int, ...]:
        """Return the output's shape for a binding."""
        bound = self.complete_binding(binding)
        return tuple(c.size.at(bound) for c in self.output)

    def weight_sizes(self, binding: Binding | None = None) -> tuple[tuple[int, ...], ...]:
        """Return the weights' shapes for a binding."""
        bound = self.complete_binding(binding)
        return tuple(tuple(size.at(bound) for size in weight.shape) for weight in self.weights)

    # -- costs -------------------------------------------------------------------------------------------------------

    def params(self, binding: Binding | None = None) -> int:
        """Count the weight elements for a binding."""
        bound = self.complete_binding(binding)
        return sum(value(weight.shape, bound) for weight in self.weights)

    def flops(self, binding: Binding | None = None) -> int:
        """Count the FLOPs of the best order of REDUCEs for a binding (Syno, Figure 4 and section 8).

        An iteration counts 2 in a stage that multiplies, and 1 in a stage that only adds.
        """
        return later("flops", self, binding)

    def memory(self, binding: Binding | None = None) -> int:
        """Return the bytes in float32: input, output, weights and the largest live intermediates of the best order."""
        return later("memory", self, binding)

    def fingerprint(self, binding: Binding | None = None) -> str:
        """Hash the function for a binding to 32 hexadecimal digits; see :mod:`syno_lab.ir.fingerprint`."""
        return later("fingerprint", self, binding)

    # -- what it computes --------------------------------------------------------------------------------------------

    def loops(
        self,
        binding: Binding | None = None,
        *,
        language: Literal["python", "c"] = "python",
        staged: bool = False,
        wrt: str | None = None,
        form: Literal["gather", "scatter"] = "gather",
        dtype: str = "double",
    ) -> str:
        """Write the loop nest, the definition of what the operator computes, as a program.

        The program is a function of the arrays ``X``, ``W1``, …, of ``Y``, which it writes, and of the sizes'
        variables. A term is left out if any UNFOLD's own coordinate is outside its domain.

        Args:
            binding: numbers for the variables, set in the first lines; without a binding the variables are arguments.
            language: ``python``, or ``c`` for C99 with arrays of variable length.
            staged: whether to write one nest for each stage of the lowering plan (Syno, section 8;
                :func:`syno_lab.codegen.nest.staged`).
            wrt: ``"X"`` or ``"W1"``, …: write the nest of the gradient with respect to this tensor, from ``dY`` and the
                other tensors (:func:`syno_lab.codegen.gradients.gradient`).
            form: the form of a gradient: ``gather`` writes each element once, ``scatter`` adds in the forward order.
            dtype: the type of the elements in C, ``float`` or ``double``.

        Raises SpecError for an unknown language, tensor, form or dtype, and for stages of a gradient.
        """
        return later("loops", self, binding, language=language, staged=staged, wrt=wrt, form=form, dtype=dtype)

    def equation(self, binding: Binding | None = None, *, staged: bool = False, wrt: str | None = None) -> Equation:
        """Write what the operator computes as an equation with short iterators: n, o, h, w; p and q for windows.

        Args:
            binding: the sizes for the choice of stages; default: see :func:`syno_lab.codegen.nest.staged`. The
                equation itself is always symbolic.
            staged: whether to write one equation for each stage of the plan (Syno, section 8), over ``Z1``, ``Z2``, ….
            wrt: ``"X"`` or ``"W1"``, …: the tensor of the gradient, which uses ``dY`` and the other tensors.

        Raises SpecError for an unknown tensor, stages of a gradient, or a primitive whose expression has no inverse.
        """
        return later("equation", self, binding, staged=staged, wrt=wrt)

    def coordinates(self, binding: Binding | None = None, *, wrt: str | None = None) -> Coordinates:
        """Tabulate the operator's coordinate expressions, forward or for a gradient.

        Args:
            binding: the values of the variables; default: the spec's first binding, or none.
            wrt: ``"X"`` or ``"W1"``, …: the tensor of the gradient, whose terms use the tensor's own iterators.

        Raises SpecError for an unknown tensor, or a binding that does not fit the operator.
        """
        return later("coordinates", self, binding, wrt=wrt)

    def receptive_field(
        self,
        index: str | Iterable[int | slice | None] | None = None,
        binding: Binding | None = None,
        *,
        should_stop: Stop | None = None,
    ) -> ReceptiveField:
        """Find the input elements that contribute to output elements, and count the terms that read each element.

        Args:
            index: one entry for each output axis: a number, or None (or ``:``) for the union over the axis. A single
                None means the whole output, and ``"center"`` the element in the middle.
            binding: the sizes; default: the spec's first binding.
            should_stop: a callback that is called often; True stops the call.

        Raises:
            StoppedError: ``should_stop`` returned True.
            SpecError: the index is no element of the output, the binding does not fit, or the input has too many
                elements to count.
        """
        return later("receptive_field", self, index, binding, should_stop=should_stop)

    def mixing(self, binding: Binding | None = None) -> Mixing:
        """Return the pairing and locality matrices of the operator; weights count as variables, so no terms cancel.

        Args:
            binding: the sizes; None means generic sizes.

        Raises SpecError for a binding that does not fit the operator or is too large to check every element.
        """
        return later("mixing", self, binding)

    def meets(self, wants: Iterable[Wish] | None = None) -> bool:
        """Return whether the pairing of :meth:`mixing` at generic sizes meets wishes (see :meth:`.Pairing.meets`).

        The method computes only the facts that the wishes need. An operator that is too large to check fails each wish
        that rules cannot decide.

        Args:
            wants: the wishes; None means the wishes of the operator's spec.
        """
        return later("meets", self, wants)

    def reference(
        self, x: Any, *weights: Any, binding: Binding | None = None, should_stop: Stop | None = None
    ) -> NDArray[Any]:
        """Compute ``Y = operator(x, *weights)`` in NumPy, in the dtype that NumPy gives to products of the arguments.

        Args:
            x: the input, with the shape ``operator.input_sizes(binding)``.
            weights: one array for each weight, with the shapes ``operator.weight_sizes(binding)``.
            binding: the sizes; default: the sizes of the arguments.
            should_stop: a callback that is called often; True stops the call.

        Raises StoppedError when ``should_stop`` returns True, and SpecError when a shape or the number of weights
        does not fit the binding.
        """
        return later("reference", self, x, *weights, binding=binding, should_stop=should_stop)

    # -- what it becomes ---------------------------------------------------------------------------------------------

    def to_torch(
        self,
        binding: Binding | None = None,
        *,
        scale: float = 1.0,
        compile: bool = False,  # noqa: A002 - the name that torch gives it
        recompute: bool | None = None,
        order: Literal["best", "naive", "measured"] = "best",
        pool: tuple[int, int] | None = None,
    ) -> nn.Module:
        """Return a module that computes the operator for any batch size, dtype and device.

        Axes that the spec fixes (the batch) take any size; ``binding`` sets all other sizes. With the initial weights,
        the output has the variance of the input if the input elements are independent. The module can be pickled,
        copied and saved whole with ``torch.save``. Loading rebuilds the module from the operator's JSON and the
        binding, wherever Syno Lab is installed.

        Args:
            binding: the sizes; None means the spec's first binding.
            scale: a constant factor outside the pGraph: 1/K² turns sum pooling into average pooling.
            compile: whether to run ``forward`` through ``torch.compile`` from the first call on (on a CPU this needs a
                C++ compiler).
            recompute: whether the backward pass computes a stage again instead of storing its intermediates. None: only
                where an intermediate has more than eight times the elements of input and output together.
            order: the plan. ``"naive"`` multiplies and sums in one stage, weight after weight, for comparisons.
                ``"measured"`` takes the fastest of several equivalent forms, timed on this CPU (at most a second or so,
                once for each shape). The choice, and so the rounding, may differ between machines.
            pool: the rows and columns of an average pooling behind the operator. If they divide the output's last two
                axes, the module has a method ``pooled`` that computes both in fewer operations, and this ``pool``.

        Raises SpecError when the binding lacks a variable or makes a size fractional.
        """
        options: dict[str, Any] = {"scale": scale, "recompute": recompute, "order": order, "pool": pool}
        return later("to_torch", self, binding, compile=compile, **options)

    def to_torch_source(
        self,
        binding: Binding | None = None,
        *,
        scale: float = 1.0,
        recompute: bool | None = None,
        order: Literal["best", "naive", "measured"] = "best",
        pool: tuple[int, int] | None = None,
    ) -> str:
        """Return Python source of a class ``SynoOperator(nn.Module)`` for ``binding``, to paste into another project.

        The arguments and errors are those of :meth:`to_torch`.
        """
        return later("to_torch_source", self, binding, scale=scale, recompute=recompute, order=order, pool=pool)

    def to_tvm(
        self,
        binding: Binding | None = None,
        dtype: str = "float32",
        *,
        order: Literal["best", "fastest", "naive"] = "fastest",
        target: str | Target | None = None,
    ) -> IRModule:
        """Return a TVM module with one function ``main(X, W1, ..., Y)`` that computes the operator for ``binding``.

        Without a ``target`` the module is unscheduled, as MetaSchedule needs it. With a ``target`` the module stores
        the target; for a GPU the module also gets TVM's default schedule, so that :func:`tvm.compile` accepts it.

        Args:
            binding: a value for every variable, the batch included; the spec's defaults complete it.
            dtype: the dtype of all tensors, for instance ``float32``.
            order: the plan. ``"fastest"`` has a stage for each partial sum that should save time, ``"best"`` for each
                that saves FLOPs, and ``"naive"`` has one stage.
            target: a name such as ``"local"`` or ``"jetson-orin-nano"``, a TVM tag, kind or JSON object, or a TVM
                target; see :func:`syno_lab.codegen.tvm_device.find_target`.

        Raises SynoError for an unknown dtype, and for a target that TVM does not know or cannot generate code for.
        Raises SpecError when the binding is incomplete.
        """
        return later("to_tvm", self, binding, dtype, order=order, target=target)

    def save_library(
        self,
        path: str | Path,
        binding: Binding | None = None,
        *,
        target: str = "local",
        dtype: str = "float32",
        records: str | Path | None = None,
        deadline_s: float = 300.0,
    ) -> LibraryRecord:
        """Compile the operator for ``binding`` and ``target`` into ``path``, and describe the file in ``path.json``.

        Args:
            path: a file name with the suffix ``.so`` or ``.tar``. A ``.so`` is linked on this machine; for another
                architecture, ``<architecture>-linux-gnu-g++`` must be on the PATH. A ``.tar`` is linked at loading.
            binding: a value for every variable, the batch included; the spec's defaults complete it.
            target: see :func:`syno_lab.codegen.tvm_device.find_target`.
            dtype: float16, float32 or float64.
            records: a folder with records of a tuning (``tune(records=…)``). Without records the loops are unscheduled,
                or on a GPU have TVM's default schedule.
            deadline_s: the limit for the whole call, in seconds.

        Raises:
            SpecError: the binding is incomplete.
            SynoError: the suffix is unknown, TVM does not know the target or was not built for it, or the linker is
                missing.
        """
        return later(
            "save_library", self, path, binding, target=target, dtype=dtype, records=records, deadline_s=deadline_s
        )

    def export(
        self,
        path: str | Path,
        binding: Binding | None = None,
        *,
        format: str | None = None,  # noqa: A002 - the word its users know
        module: nn.Module | None = None,
        scale: float = 1.0,
    ) -> Exported:
        """Write the operator to a file of another program's format, and keep the file only if a read-back agrees.

        Args:
            path: the file.
            binding: the sizes; axes that the spec fixes (the batch) take any size in the file.
            format: the name of the format; None means the format of ``path``'s suffix.
            module: ``operator.to_torch(binding)`` with the weights (and the dtype) for the file; None means a module
                with fresh weights. A Python file holds no weights.
            scale: a constant factor outside the pGraph, as in :meth:`to_torch`; ``module`` must have the same factor.

        Raises:
            SpecError: the binding leaves a size open or fractional.
            ExportError: the format, the name or the module is wrong, the format cannot hold the operator, the file
                cannot be written, or the read-back differs.
        """
        return later("export", self, path, binding, format=format, module=module, scale=scale)

    def load_weights(self, path: str | Path, binding: Binding | None = None, *, scale: float = 1.0) -> nn.Module:
        """Return a torch module of the operator with the weights in ``path``, in the weights' dtype.

        Args:
            path: a file with weights that :meth:`export` wrote.
            binding: the sizes; None means the sizes in the file. The batch size may differ.
            scale: as in :meth:`to_torch`.

        Raises FormatError for another kind of file, and for a file with weights of another operator or binding.
        """
        return later("load_weights", self, path, binding, scale=scale)

    def construct_kernel_packs(self) -> list[KernelPack]:
        """Return a pack of modules for each binding of the spec, one kind of placeholder in the sampler's net.

        Raises SpecError when the spec has no bindings.
        """
        return later("construct_kernel_packs", self)

    def figure(
        self,
        of: Literal["graph", "loops", "equation"] = "graph",
        binding: Binding | None = None,
        *,
        title: str | None = None,
        highlight: Iterable[Coordinate | int] = (),
        staged: bool = False,
        wrt: str | None = None,
        language: Literal["python", "c"] = "python",
    ) -> Figure:
        """Make a picture for a paper: ``operator.figure().save("conv2d.pdf")``.

        Args:
            of: ``graph``, ``loops`` (the loop nest) or ``equation``.
            binding: as for :meth:`loops` and :meth:`equation`.
            title: a line above the graph.
            highlight: as for :meth:`dot`.
            staged: as for :meth:`loops` and :meth:`equation`.
            wrt: as for :meth:`loops` and :meth:`equation`.
            language: the language of the loop nest.

        Raises SpecError for an unknown ``of``, and as :meth:`loops` and :meth:`equation` do.
        """
        return later(
            "figure", self, of, binding, title=title, highlight=highlight, staged=staged, wrt=wrt, language=language
        )

    # -- JSON and equality -------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Write the operator as JSON text with a version number; :meth:`from_json` reads the text."""
        from syno_lab.ir.files import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Operator:
        """Read the text of :meth:`to_json`.

        Raises FormatError for another format or version, missing fields or other content. Raises PrimitiveError for
        illegal steps.
        """
        from syno_lab.ir.files import from_json

        return from_json(text)

    @cached_property
    def key(self) -> Key:
        """Return a value that is equal for equal pGraphs with the same matching of input axes."""
        return canonical_key(self.state, self.inputs, ordered=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operator):
            return NotImplemented
        return self is other or (self.state.signature == other.state.signature and self.key == other.key)

    def __hash__(self) -> int:
        # Hash bytes, because Python's hash of tuples does not distinguish -1 from -2, and exponents have these values.
        return hash(msgspec.msgpack.encode(self.key))

    def __str__(self) -> str:
        weights = ", ".join(shape_text(weight.shape) for weight in self.weights) or "no weights"
        ends = (shape_text(c.size for c in coordinates) for coordinates in (self.inputs, self.output))
        return f"{' -> '.join(ends)} with {weights}, {len(self.steps)} steps"

    def __repr__(self) -> str:
        return f"<Operator {self}>"
