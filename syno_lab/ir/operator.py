"""A complete pGraph: a linear operator as an immutable value (Syno, sections 4 and 5).

What it costs, what it computes, what it becomes and how it is shown are methods too; the rooms that do it are loaded
when one is called (:mod:`syno_lab.later`).
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
from syno_lab.ir.state import Key, State, Step, Weight, canonical_key
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
class Operator:
    """``Y[output] = sum over reductions of X[inputs] * W1[...] * ...``, zero where an UNFOLD is out of bounds.

    Attributes:
        state: the complete state it was read from.
        inputs: the coordinate that indexes each axis of the input.
    """

    format: ClassVar[str] = FORMAT

    state: State
    inputs: tuple[Coordinate, ...]

    @property
    def spec(self) -> Spec:
        """The spec it was built for."""
        return self.state.spec

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the spec's variables, primaries first."""
        return self.spec.symbols.names

    @property
    def output(self) -> tuple[Coordinate, ...]:
        """The output iterators, one for each axis."""
        return self.state.output

    @property
    def reductions(self) -> tuple[Coordinate, ...]:
        """The reduction iterators."""
        return self.state.reductions

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights, in the order in which :meth:`reference` and the modules take them."""
        return self.state.weights

    @property
    def expanded(self) -> tuple[Coordinate, ...]:
        """The coordinates dropped by EXPAND."""
        return self.state.expanded

    @property
    def steps(self) -> tuple[Step, ...]:
        """How it was built, bottom-up."""
        return self.state.steps

    def complete_binding(self, binding: Binding | None = None) -> dict[str, int]:
        """``binding`` completed by the spec's defaults; None takes the spec's first binding."""
        if binding is None and self.spec.bindings:
            return dict(self.spec.bindings[0])
        return self.spec.complete_binding(binding or {})

    def input_sizes(self, binding: Binding | None = None) -> tuple[int, ...]:
        """The input's shape for a binding."""
        bound = self.complete_binding(binding)
        return tuple(c.size.at(bound) for c in self.inputs)

    def output_sizes(self, binding: Binding | None = None) -> tuple[int, ...]:
        """The output's shape for a binding."""
        bound = self.complete_binding(binding)
        return tuple(c.size.at(bound) for c in self.output)

    def weight_sizes(self, binding: Binding | None = None) -> tuple[tuple[int, ...], ...]:
        """The weights' shapes for a binding."""
        bound = self.complete_binding(binding)
        return tuple(tuple(size.at(bound) for size in weight.shape) for weight in self.weights)

    # -- costs -------------------------------------------------------------------------------------------------------

    def params(self, binding: Binding | None = None) -> int:
        """The number of weight elements for a binding."""
        bound = self.complete_binding(binding)
        return sum(value(weight.shape, bound) for weight in self.weights)

    def flops(self, binding: Binding | None = None) -> int:
        """FLOPs of the best order of REDUCEs for a binding (Syno, Figure 4 and section 8).

        Two for each iteration of a stage that multiplies, one for a stage that only adds.
        """
        return later("flops", self, binding)

    def memory(self, binding: Binding | None = None) -> int:
        """Bytes in float32: input, output, weights and the largest live intermediates of the best order."""
        return later("memory", self, binding)

    def fingerprint(self, binding: Binding | None = None) -> str:
        """A hash of what it computes for a binding: 32 hexadecimal digits; see :mod:`syno_lab.ir.fingerprint`."""
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
        """The loop nest, the definition of what it computes, as a program.

        It is a function of the arrays ``X``, ``W1``, … and ``Y``, which is written, and of the variables of the sizes.
        A term is left out where any UNFOLD's own coordinate is outside its domain.

        Args:
            binding: with it the variables are no arguments but set to its numbers in the first lines.
            language: ``python``, or ``c`` for C99 with arrays of variable length.
            staged: one nest for each stage of the lowering plan (Syno, section 8;
                :func:`syno_lab.codegen.nest.staged`).
            wrt: ``"X"`` or ``"W1"``, …: the nest of the gradient with respect to that tensor, from ``dY`` and the other
                tensors (:func:`syno_lab.codegen.gradients.gradient`).
            form: of a gradient: ``gather`` writes each element once, ``scatter`` adds to it in the forward order.
            dtype: of the elements in C, ``float`` or ``double``.

        Raises SpecError for another language, tensor, form or dtype, or stages of a gradient.
        """
        return later("loops", self, binding, language=language, staged=staged, wrt=wrt, form=form, dtype=dtype)

    def equation(self, binding: Binding | None = None, *, staged: bool = False, wrt: str | None = None) -> Equation:
        """What it computes, as an equation with short iterators: n, o, h, w of the output, p and q of windows.

        Args:
            binding: for which sizes the stages are chosen; without it as in :func:`syno_lab.codegen.nest.staged`. The
                equation itself is always in symbols.
            staged: one equation for each stage of the lowering plan (Syno, section 8), over ``Z1``, ``Z2``, ….
            wrt: ``"X"`` or ``"W1"``, …: the gradient with respect to that tensor, from ``dY`` and the other tensors.

        Raises SpecError for another tensor, for stages of a gradient, or a primitive whose expression has no inverse.
        """
        return later("equation", self, binding, staged=staged, wrt=wrt)

    def coordinates(self, binding: Binding | None = None, *, wrt: str | None = None) -> Coordinates:
        """The table of its coordinate expressions, forward or of a gradient.

        Args:
            binding: the sizes' numbers; without it those of the spec's first binding, or none.
            wrt: ``"X"`` or ``"W1"``, …: the terms of the gradient with respect to that tensor, in its own iterators.

        Raises SpecError for another tensor, or a binding that does not fit.
        """
        return later("coordinates", self, binding, wrt=wrt)

    def receptive_field(
        self,
        index: str | Iterable[int | slice | None] | None = None,
        binding: Binding | None = None,
        *,
        should_stop: Stop | None = None,
    ) -> ReceptiveField:
        """The input elements that contribute to output elements, with how many terms read each.

        Args:
            index: one entry for each output axis, a number or None (or ``:``) for all of it, so that an array slice is
                the union over it; None alone is the whole output, ``"center"`` the element in the middle.
            binding: the sizes; without it the spec's first binding.
            should_stop: asked often; once it says so there is no answer.

        Raises:
            StoppedError: when ``should_stop`` said so.
            SpecError: for an index that is no element of the output, a binding that does not fit, or an input with too
                many elements to count what is read.
        """
        return later("receptive_field", self, index, binding, should_stop=should_stop)

    def mixing(self, binding: Binding | None = None) -> Mixing:
        """Its pairing and locality matrices; its weights count as free, so that nothing cancels.

        Args:
            binding: the sizes; None takes generic ones.

        Raises SpecError for a binding that does not fit or is too large to look at every element.
        """
        return later("mixing", self, binding)

    def meets(self, wants: Iterable[Wish] | None = None) -> bool:
        """Whether it meets wishes at generic sizes, as :meth:`.Pairing.meets` says it of :meth:`mixing`.

        Only what the wishes need is decided. An operator that is too large to look at does not meet a wish that rules
        leave open.

        Args:
            wants: None for those of its spec.
        """
        return later("meets", self, wants)

    def reference(
        self, x: Any, *weights: Any, binding: Binding | None = None, should_stop: Stop | None = None
    ) -> NDArray[Any]:
        """``Y = operator(x, *weights)`` in NumPy, in the dtype that NumPy gives to products of the arguments.

        Args:
            x: the input, shaped as ``operator.input_sizes(binding)``.
            weights: one array for each weight, shaped as ``operator.weight_sizes(binding)``.
            binding: the sizes; without it they are read off the arguments.
            should_stop: asked often; once it says so there is no answer.

        Raises StoppedError when ``should_stop`` said so; SpecError when a shape or the number of weights is not what
        the binding says.
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
    ) -> nn.Module:
        """A module that computes it on tensors of the input's shape, for any batch size, dtype and device.

        Axes that the spec fixes (the batch) take any size; all others are those of ``binding``. Weights start so that
        the output's variance is that of the input for independent input elements. The module can be pickled, copied and
        saved whole with ``torch.save``: it is rebuilt from the operator's JSON and the binding, wherever Syno Lab is
        installed.

        Args:
            binding: the sizes; None takes the spec's first binding.
            scale: a constant factor outside the pGraph: 1/K² makes average pooling of sum pooling.
            compile: run ``forward`` through ``torch.compile``, on the first call (needs a C++ compiler on a CPU).
            recompute: compute a stage again in the backward pass instead of storing what is inside it, in training:
                always, never, or (None) where an intermediate has more than eight times the elements of input and
                output together.
            order: the plan; ``"naive"`` multiplies and sums in one stage, weight after weight, to compare with.
                ``"measured"`` takes the fastest of several equal forms, timed here on the CPU (a second or less, once
                for a shape); which one that is may differ from machine to machine and with it the rounding.

        Raises SpecError when the binding misses a variable or leaves a size fractional.
        """
        return later("to_torch", self, binding, scale=scale, compile=compile, recompute=recompute, order=order)

    def to_torch_source(
        self,
        binding: Binding | None = None,
        *,
        scale: float = 1.0,
        recompute: bool | None = None,
        order: Literal["best", "naive", "measured"] = "best",
    ) -> str:
        """Python source of a class ``SynoOperator(nn.Module)`` for ``binding``, to paste into one's own project.

        The arguments and errors are those of :meth:`to_torch`.
        """
        return later("to_torch_source", self, binding, scale=scale, recompute=recompute, order=order)

    def to_tvm(
        self,
        binding: Binding | None = None,
        dtype: str = "float32",
        *,
        order: Literal["best", "fastest", "naive"] = "fastest",
        target: str | Target | None = None,
    ) -> IRModule:
        """A TVM module with one function ``main(X, W1, ..., Y)`` that computes it for ``binding``.

        Without a ``target`` it is unscheduled, as MetaSchedule wants it. With one it carries that target, and for a GPU
        it has TVM's default schedule, which every GPU program needs: :func:`tvm.compile` takes it as it is.

        Args:
            binding: a value for every variable, the batch included; the spec's defaults complete it.
            dtype: of all tensors, ``float32`` for instance.
            order: the plan. ``"fastest"`` has a stage for each partial sum that is predicted to save time, ``"best"``
                for each that saves FLOPs, ``"naive"`` is one stage.
            target: a name such as ``"local"`` or ``"jetson-orin-nano"``, a TVM tag, kind or JSON object, or a TVM
                target; see :func:`syno_lab.codegen.tvm_device.find_target`.

        Raises SynoError for another dtype, and for a target that TVM does not know or cannot generate code for;
        SpecError when the binding is incomplete.
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
        """Compile it for ``binding`` and ``target`` into ``path``, and say what it is in ``path.json``.

        Args:
            path: ends in ``.so`` (linked here; for another architecture by ``<architecture>-linux-gnu-g++``, which must
                be on the PATH) or in ``.tar`` (objects, linked where they are loaded).
            binding: a value for every variable, the batch included; the spec's defaults complete it.
            target: see :func:`syno_lab.codegen.tvm_device.find_target`.
            dtype: float16, float32 or float64.
            records: a folder that a tuning wrote (``tune(records=…)``); without one the loops are unscheduled, or on a
                GPU those of TVM's default schedule.
            deadline_s: seconds for all of it.

        Raises:
            SpecError: when the binding is incomplete.
            SynoError: for another suffix, a target that TVM does not know or was not built for, a linker that is
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
        """Write it to a file in another program's format; the file is there only if it agrees when read back.

        Args:
            path: the file.
            binding: the sizes; axes that the spec fixes (the batch) take any size in the file.
            format: None goes by the suffix of ``path``.
            module: ``operator.to_torch(binding)`` with the weights (and the dtype) to put into the file; None makes one
                with fresh weights. A Python file holds no weights.
            scale: a constant factor outside the pGraph, as in :meth:`to_torch`; the one that ``module`` was made with.

        Raises:
            SpecError: when the binding leaves a size open or fractional.
            ExportError: when the format, the name or the module does not fit, the format cannot hold the operator, the
                place cannot be written to, or what is read back differs.
        """
        return later("export", self, path, binding, format=format, module=module, scale=scale)

    def load_weights(self, path: str | Path, binding: Binding | None = None, *, scale: float = 1.0) -> nn.Module:
        """It as a torch module with the weights in ``path``, in their dtype.

        Args:
            path: a file with weights of :meth:`export`.
            binding: the sizes; None takes those of the file. The batch may differ.
            scale: as in :meth:`to_torch`.

        Raises FormatError when the file is no such file, or holds weights of another operator or binding.
        """
        return later("load_weights", self, path, binding, scale=scale)

    def construct_kernel_packs(self) -> list[KernelPack]:
        """One pack for each binding of the spec, that is for each kind of placeholder of the sampler's network.

        Raises SpecError when the spec has no bindings.
        """
        return later("construct_kernel_packs", self)

    # -- pictures ----------------------------------------------------------------------------------------------------

    def dot(
        self, *, highlight: Iterable[Coordinate | int] = (), title: str | None = None, is_steady: bool = False
    ) -> str:
        """The pGraph as DOT text, the same text for the same steps.

        Args:
            highlight: coordinates, and numbers of steps, to be drawn with a thick border.
            title: a line above the drawing; any text, it is escaped.
            is_steady: whether the nodes stand as they did before the last step, for pictures that follow one another;
                else the layout program places them.
        """
        return later("dot", self, highlight=highlight, title=title, is_steady=is_steady)

    def svg(
        self, *, highlight: Iterable[Coordinate | int] = (), title: str | None = None, is_steady: bool = False
    ) -> str:
        """The pGraph as an SVG element with a text alternative; the arguments are those of :meth:`dot`.

        Raises SynoError when the layout program is not installed.
        """
        return later("svg", self, highlight=highlight, title=title, is_steady=is_steady)

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
        """A picture for a paper: ``operator.figure().save("conv2d.pdf")``.

        Args:
            of: ``graph``, ``loops`` (the loop nest) or ``equation``.
            binding: as of :meth:`loops` and :meth:`equation`.
            title: a line above the graph.
            highlight: as of :meth:`dot`.
            staged: as of :meth:`loops` and :meth:`equation`.
            wrt: as of :meth:`loops` and :meth:`equation`.
            language: of the loop nest.

        Raises SpecError for another ``of``, or as :meth:`loops` and :meth:`equation`.
        """
        return later(
            "figure", self, of, binding, title=title, highlight=highlight, staged=staged, wrt=wrt, language=language
        )

    def _repr_svg_(self) -> str:
        return self.svg()

    # -- as text, and equality ---------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """As JSON text with a version number; :meth:`from_json` reads it back."""
        from syno_lab.ir.files import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Operator:
        """Read :meth:`to_json`'s text.

        Raises FormatError for another format or version, missing fields or junk; PrimitiveError when its steps are not
        legal.
        """
        from syno_lab.ir.files import from_json

        return from_json(text)

    @cached_property
    def key(self) -> Key:
        """Equal for equal pGraphs with the same matching of input axes."""
        return canonical_key(self.state, self.inputs, ordered=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operator):
            return NotImplemented
        return self is other or (self.state.signature == other.state.signature and self.key == other.key)

    def __hash__(self) -> int:
        # Of its bytes, because Python's hash of tuples does not tell -1 from -2, and exponents are just that.
        return hash(msgspec.msgpack.encode(self.key))

    def __str__(self) -> str:
        weights = ", ".join(shape_text(weight.shape) for weight in self.weights) or "no weights"
        ends = (shape_text(c.size for c in coordinates) for coordinates in (self.inputs, self.output))
        return f"{' -> '.join(ends)} with {weights}, {len(self.steps)} steps"

    def __repr__(self) -> str:
        return f"<Operator {self}>"
