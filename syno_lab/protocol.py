"""The protocols of an operator, of its placement in a network, and of the system that it belongs to.

Search, models, training, tuning, the store, reports, commands and widgets use only these protocols. A system is a way
to write and to find operators: Syno's pGraphs are one (:mod:`syno_lab.pgraphs`), NAS-PTE's concatenations another;
:mod:`syno_lab.systems` lists them. The conformance suite in :mod:`syno_lab.testing` checks a system. How operators are
built step by step is in :mod:`syno_lab.sessions`.

A *binding* gives each variable of an operator a positive size: ``{"C_in": 64, "H": 28}``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:  # types alone: this file is used by every room and needs none of them
    import numpy as np
    from torch import nn

    from syno_lab.common.pairing import Pairing
    from syno_lab.models.sites import Site, Strides
    from syno_lab.models.slot import Place
    from syno_lab.panes.data import Form, PaneData
    from syno_lab.search.protocol import State
    from syno_lab.sessions.construction import Construction
    from syno_lab.sessions.own_rule import OwnRule

Binding = Mapping[str, int]

#: The size of an element as :meth:`Operator.memory` and the tables of costs count it, in bytes.
FLOAT32_BYTES = 4


@runtime_checkable
class Operator(Hashable, Protocol):
    """An operator of any system: an immutable value; equal operators have equal hashes.

    Every method with a binding raises SpecError where the binding lacks a variable, or a size is no positive integer.
    """

    @property
    def format(self) -> str:
        """The ``format`` of its JSON, by which :mod:`syno_lab.systems` finds its system."""

    @property
    def variables(self) -> Sequence[str]:
        """The names of its variables."""

    def complete_binding(self, binding: Binding | None = None, /) -> dict[str, int]:
        """The sizes of all variables: from ``binding``, else defaults."""

    def input_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """The shape of the input."""

    def output_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """The shape of the output."""

    def weight_sizes(self, binding: Binding | None = None, /) -> tuple[tuple[int, ...], ...]:
        """The shapes of the weights, in the order in which :meth:`reference` takes them."""

    def flops(self, binding: Binding | None = None, /) -> int:
        """FLOPs, 2 for each multiply-add."""

    def params(self, binding: Binding | None = None, /) -> int:
        """The number of weight elements."""

    def memory(self, binding: Binding | None = None, /) -> int:
        """Bytes in float32: input, output, weights and the largest live intermediates."""

    def fingerprint(self, binding: Binding | None = None, /) -> str:
        """A hash of the function under the binding, 32 hexadecimal digits; never compared between two systems.

        Raises SynoError where the operator has too many terms.
        """

    def reference(self, x: Any, *weights: Any, binding: Binding | None = None) -> np.ndarray[Any, Any]:
        """The meaning: the output for the input ``x`` and the weights, in NumPy, slowly and plainly."""

    def to_torch(self, binding: Binding | None = None, /) -> nn.Module:
        """A module with freshly drawn weights ``weight_1``, ``weight_2``, … in the order of :meth:`weight_sizes`."""

    def to_torch_source(self, binding: Binding | None = None, /) -> str:
        """The module as Python source that needs torch alone: a class ``SynoOperator`` made without arguments."""

    def to_tvm(self, binding: Binding | None = None, /, dtype: str = "float32") -> Any:
        """An IRModule with one unscheduled function ``main(X, W1, ..., Y)``."""

    def dot(self, *, highlight: Iterable[Any] = (), title: str | None = None) -> str:
        """Its picture as DOT text, with a title and with parts that its system knows drawn with a thick border."""

    def svg(self, *, highlight: Iterable[Any] = (), title: str | None = None) -> str:
        """The same picture as SVG."""

    def to_json(self) -> str:
        """As JSON text with ``format`` and ``version``; :func:`syno_lab.systems.read_operator` reads it back."""


class Placement(Protocol):
    """A network with an operator in it: in all slots that it fits, or in the place of the whole network."""

    @property
    def places(self) -> Sequence[Place]:
        """For each layer that may be replaced, in order: whether the operator replaces it, or why not.

        Where the operator is the whole network: for each part of it before or after with costs, whether it is new.
        """

    def apply(self, net: nn.Module) -> nn.Module:
        """Return ``net`` with the operator in it, changed in place; its weights are drawn from torch's generator.

        Raises SpecError where the operator fits nowhere; ``net`` is unchanged then.
        """


@dataclass(frozen=True)
class SearchStep:
    """A step of a search as it is stored: its actions, without the states before and after it.

    Attributes:
        name: for people, and to tell the steps from one state apart.
        actions: words for the changes, with the same meaning in other states; estimates are shared by them (AMAF).
        steps: the number of the operator's steps in it; a search may take several at once, or one in two parts.
        words: words with their counts, from which a search estimates an operator's reward (counts of equal words are
            added up); by default each action once.
    """

    name: str
    actions: tuple[str, ...]
    steps: int = field(default=1, kw_only=True)
    words: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)

    @property
    def counted(self) -> tuple[tuple[str, int], ...]:
        """The words, or the actions where there are none."""
        return self.words or tuple((action, 1) for action in self.actions)


class OperatorSpace(Protocol):
    """The operators that a search may find for some layers of a network; its ``str`` describes them in a few words."""

    @property
    def wants(self) -> str:
        """What every operator of it must read and mix, as text for people; empty for nothing."""

    def root(self, accepts: Callable[[Any], bool]) -> State:
        """The first state of the space; a complete operator that ``accepts`` refuses is not in the space."""

    def known(self, root: State) -> Mapping[str, Operator]:
        """The known operators that the space of ``root`` has, as it has them, by name."""

    def name_of(self, operator: Any) -> str:
        """A name by which a search tells operators apart: equal for operators that compute the same function.

        It may be equal for mirror images too.
        """

    def lower(self, spare_flops: int) -> None:
        """From now on give operators of at most so many FLOPs in all sites: the limit of the request was lowered.

        ``accepts`` refuses those above it; a space that fills operators up to a budget must fill them less.
        """

    def probe(self, operator: Any) -> Mapping[str, float] | None:
        """What an operator of the space promises without training, in numbers of 0 or more, the same each time.

        ``score``, from 0 to about 1, ranks operators: 1 promises as much as the replaced layers. Milliseconds. None:
        the system has no probe.
        """
        return None


@dataclass(frozen=True)
class SpaceRequest:
    """The request of a search for a system's space.

    Attributes:
        sites: the layers that are to be replaced.
        strides: how their strides are applied.
        spare_flops: the most FLOPs of the operators in all sites together, for one example.
        coefficients, occurrences, limits: given by the user, as in ``SearchSettings``; a system refuses unknown
            names.
        weight_limits: which limits of occurrences bind the dimensions of weights, for a system that has such limits:
            ``primary`` or ``free``.
        wants: what every operator must read and mix, in the system's words; None: what the layers do themselves; empty:
            nothing.
        drawn: to be told the key of every complete operator that a search asks for, before ``wants`` refuses any; the
            funnel of a search counts them.
        wished: to be told the key of those that meet ``wants``, before the FLOPs refuse any; a space that does not tell
            them counts those for which ``accepts`` is asked.
        options: of the system alone, by the names of its :attr:`Optioned.space_options`, as text.
        network: builds the network without weights, and gives its example (:func:`syno_lab.alpha.trace`), for a system
            whose operators are whole networks; None: only the layers are known.
    """

    sites: Sequence[Site]
    strides: Strides
    spare_flops: int
    coefficients: Sequence[str] | None
    occurrences: Mapping[str, int]
    limits: Mapping[str, Any]
    weight_limits: Literal["free", "primary"] = "primary"
    wants: str | None = None
    drawn: Callable[[Hashable], None] = lambda key: None
    wished: Callable[[Hashable], None] = lambda key: None
    options: Mapping[str, str] = field(default_factory=dict)
    network: Callable[[], tuple[nn.Module, Any]] | None = None


def _nothing(asked: Any, data: Any) -> list[Any]:
    return []


@dataclass(frozen=True)
class Pane:
    """One form of an operator for people, computed when it is opened.

    Attributes:
        read: makes plain data for the browser (:mod:`syno_lab.panes.data`) from a :class:`syno_lab.panes.Asked`; raises
            SynoError if there is nothing to show.
        depends: the names of the fields of ``Asked``, beside the operator, that change the data.
        exports: makes the forms of the pane's files from ``Asked`` and the data (:mod:`syno_lab.panes.forms`).
        texts: makes the texts that stay on a page without a kernel from the same, for a pane that is shown at once.
        title: the text on its tab; empty: its name.
    """

    read: Callable[[Any], PaneData]
    depends: tuple[str, ...] = ()
    exports: Callable[[Any, Any], list[Form]] = _nothing
    texts: Callable[[Any, Any], Sequence[str]] = _nothing
    title: str = ""


@dataclass(frozen=True)
class PrimitiveCard:
    """One primitive of a system on one page.

    Attributes:
        name: of the primitive, as its system writes it.
        text: the whole card: how it is written, what it takes and gives, what is refused, and the source.
        words: the text alternative of the picture.
        line: what it takes and gives, in one line.
        draw: makes the picture, as SVG.
    """

    name: str
    text: str
    words: str
    line: str
    draw: Callable[[], str]


@dataclass(frozen=True)
class TracedStep:
    """One step of an operator, to be put beside those of others.

    Attributes:
        kind: its primitive; only steps of one kind are put side by side where they differ.
        words: the step in words, for people.
        key: equal keys, among those of one call of :meth:`Traced.traces`, are steps that do the same to the same.
        takes: the keys of what it is applied to; steps that take nothing in common are not put side by side.
        ids: the nodes of the picture that are this step.
    """

    kind: str
    words: str
    key: int
    takes: frozenset[int] = frozenset()
    ids: tuple[str, ...] = ()


class System(Protocol):
    """A system of operators: what all of them have. Methods but :meth:`read` take only operators of this system.

    The protocols below are what only some systems can do: a system that can do one has its members, and callers ask by
    ``isinstance``. A class that inherits from this one gets the methods that have a body.
    """

    @property
    def format(self) -> str:
        """The ``format`` of its operators' JSON."""

    @property
    def title(self) -> str:
        """Its name for people: ``pGraphs``."""

    def read(self, text: str | bytes) -> Operator:
        """The operator of a JSON text. Reading only checks the text; it runs no code of it.

        Raises FormatError, one line: what was expected, what was found and where.
        """

    def summary(self, text: str | bytes) -> str:
        """A few words for a table about the operator of a JSON text; it reads only the fields that they need.

        Raises FormatError where it is no JSON of this system.
        """
        return str(self.read(text))

    @property
    def known(self) -> Mapping[str, Callable[[], Operator]]:
        """Known operators by name."""

    def recognise(self, operator: Any) -> str | None:
        """The name in :attr:`known` of an operator equal to this one up to the names of variables, else None."""
        return next((name for name, make in self.known.items() if make() == operator), None)

    def placement(self, operator: Any, sites: Sequence[Site], strides: Strides) -> Placement:
        """The placement that replaces the layers ``sites`` of a network by the operator."""

    def traits(self, operator: Any, binding: Binding) -> Mapping[str, int]:
        """Words with numbers of 0 or more, similar for operators that do alike; {} if nothing is known."""

    def traffic(self, operator: Any, binding: Binding) -> int:
        """Elements of all tensors that a forward pass of its module makes, its output among them."""
        found: int = operator.traffic(binding)
        return found

    def example_binding(self, operator: Any) -> dict[str, int]:
        """The sizes of all variables with which a view shows the operator by default.

        Raises SpecError where no sizes are found.
        """
        return operator.complete_binding()

    def small_binding(self, operator: Any) -> dict[str, int]:
        """Small sizes for fingerprints that tell operators apart: all different, if the operator allows it."""
        return self.example_binding(operator)

    @property
    def panes(self) -> Mapping[str, Pane]:
        """The forms of an operator that a view can show, by names among :data:`syno_lab.panes.NAMES`.

        ``graph`` is first; the second is shown beside it at once, so it should be cheap.
        """


# -- what only some systems can do -------------------------------------------------------------------------------------


@runtime_checkable
class OfLayers(Protocol):
    """A system whose operators take the places of a network's layers."""

    def binding_for(
        self, operator: Any, named: Binding, input_sizes: Sequence[int], output_sizes: Sequence[int]
    ) -> dict[str, int]:
        """The sizes of the operator's variables for a layer of these shapes; the system knows the meaning of each axis.

        ``named`` are the layer's sizes by their usual names (N, C_in, C_out, H, W, s, and of a convolution window_h and
        window_w); the first axis is the batch, or the positions. Raises SpecError where the operator does not fit.
        """


@runtime_checkable
class OfNetworks(Protocol):
    """A system whose operators are whole networks, whatever layers are named."""

    def network_costs(self, operator: Any) -> tuple[int, int]:
        """FLOPs and parameters of the network for one example."""


@runtime_checkable
class ComputesLayers(Protocol):
    """A system that has operators for what layers compute."""

    def for_layer(self, site: Site) -> tuple[Operator, dict[str, int]]:
        """An operator that computes what a network's layer computes for one example, and the sizes of its variables.

        Raises SpecError where there is none, in one line that begins with the layer's name.
        """


@runtime_checkable
class Searched(Protocol):
    """A system with a space that can be searched."""

    def space(self, request: SpaceRequest) -> OperatorSpace:
        """The space that is searched for these layers. Raises SpecError where there is none."""


@runtime_checkable
class Ruled(Searched, Protocol):
    """A system whose searches take rules of the user's own."""

    def ruled_space(self, request: SpaceRequest, rules: Sequence[OwnRule]) -> OperatorSpace:
        """The space without the operators that have a step that a rule refuses."""


@runtime_checkable
class Optioned(Searched, Protocol):
    """A system whose space has options that no other has."""

    @property
    def space_options(self) -> Mapping[str, Sequence[str]]:
        """The options, each with its values, the default first."""


@runtime_checkable
class Mixing(Protocol):
    """A system that tells of its operators what αNAS asks of an operation."""

    def mixing(self, operator: Any, binding: Binding) -> Pairing:
        """Which output axis is paired with which input axis at these sizes (αNAS, section 3.1).

        Raises SpecError where it cannot be told at these sizes.
        """

    def is_linear(self, operator: Any) -> bool:
        """Whether the operator counts as linear in its input."""


@runtime_checkable
class OfPrimitives(Protocol):
    """A system whose operators are made of primitives."""

    def cards(self) -> Mapping[str, PrimitiveCard]:
        """The cards of its primitives by their names."""


@runtime_checkable
class StandsFor(Protocol):
    """A system with values that are no operators, and stand for one."""

    def operator_of(self, value: Any) -> Operator | None:
        """The operator that a value of this system stands for by itself; None for all else."""


@runtime_checkable
class FitsPlaces(Protocol):
    """A system whose operators have numbers for places of a network."""

    def places(self, operator: Any) -> Mapping[str, Mapping[str, int]]:
        """The places of a network that the operator has numbers for: their names for people, and the sizes there."""


@runtime_checkable
class Traced(Protocol):
    """A system whose operators consist of steps."""

    def traces(self, values: Sequence[Any]) -> Sequence[Sequence[TracedStep]]:
        """The steps of several operators, or of states that a session builds, so that equal ones can be told."""


@runtime_checkable
class Stepwise(Protocol):
    """A system whose operators are built by steps."""

    @property
    def construction(self) -> Construction[Any, Any, Any]:
        """How: all that sessions, steppers and the explorer need of it."""
