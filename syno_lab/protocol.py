"""The protocols of operators, of placements of operators in networks, and of systems of operators.

Search, models, training, tuning, the store, reports, commands and widgets use only these protocols. A system is a way
to write and to find operators. Syno's pGraphs (:mod:`syno_lab.pgraphs`) and NAS-PTE's concatenations are two systems;
:mod:`syno_lab.systems` lists all. The conformance suite in :mod:`syno_lab.testing` checks a system. The protocols for
building operators step by step are in :mod:`syno_lab.sessions`.

A *binding* gives each variable of an operator a positive size: ``{"C_in": 64, "H": 28}``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:  # only for types: every package imports this file, so it must not import any package
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

#: The bytes of an element for :meth:`Operator.memory` and the tables of costs.
FLOAT32_BYTES = 4


@runtime_checkable
class Operator(Hashable, Protocol):
    """An operator of any system: an immutable value; equal operators have equal hashes.

    Every method with a binding raises SpecError if the binding lacks a variable, or if a size is no positive integer.
    """

    @property
    def format(self) -> str:
        """The ``format`` of the operator's JSON. :mod:`syno_lab.systems` finds the operator's system by this text."""

    @property
    def variables(self) -> Sequence[str]:
        """The names of the operator's variables."""

    def complete_binding(self, binding: Binding | None = None, /) -> dict[str, int]:
        """Return the sizes of all variables: from ``binding``, else the defaults."""

    def input_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """Return the shape of the input."""

    def output_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """Return the shape of the output."""

    def weight_sizes(self, binding: Binding | None = None, /) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the weights, in the order of the arguments of :meth:`reference`."""

    def flops(self, binding: Binding | None = None, /) -> int:
        """Return the FLOPs, 2 for each multiply-add."""

    def params(self, binding: Binding | None = None, /) -> int:
        """Return the number of weight elements."""

    def memory(self, binding: Binding | None = None, /) -> int:
        """Return the bytes in float32 of input, output, weights and the largest live intermediates."""

    def fingerprint(self, binding: Binding | None = None, /) -> str:
        """Return a hash of the function under the binding, 32 hexadecimal digits.

        Hashes of different systems are never compared. Raises SynoError if the operator has too many terms.
        """

    def reference(self, x: Any, *weights: Any, binding: Binding | None = None) -> np.ndarray[Any, Any]:
        """Compute the output for the input ``x`` and the weights in NumPy, slowly; the result defines the operator."""

    def to_torch(self, binding: Binding | None = None, /) -> nn.Module:
        """Return a module with random weights ``weight_1``, ``weight_2``, … in the order of :meth:`weight_sizes`."""

    def to_torch_source(self, binding: Binding | None = None, /) -> str:
        """Return the module as Python source that only imports torch: a class ``SynoOperator`` without arguments."""

    def to_tvm(self, binding: Binding | None = None, /, dtype: str = "float32") -> Any:
        """Return an IRModule with one unscheduled function ``main(X, W1, ..., Y)``."""

    def dot(self, *, highlight: Iterable[Any] = (), title: str | None = None) -> str:
        """Return the picture of the operator as DOT text with a title; nodes in ``highlight`` have a thick border."""

    def svg(self, *, highlight: Iterable[Any] = (), title: str | None = None) -> str:
        """Return the picture of :meth:`dot` as SVG."""

    def to_json(self) -> str:
        """Return JSON text with ``format`` and ``version``; :func:`syno_lab.systems.read_operator` reads it back."""


class Placement(Protocol):
    """A network with an operator, in all slots that the operator fits or instead of the whole network."""

    @property
    def places(self) -> Sequence[Place]:
        """For each layer that may be replaced, in order: whether it is replaced, or why not.

        For an operator that is a whole network: for each part of the old or new network with costs, whether it is new.
        """

    def apply(self, net: nn.Module) -> nn.Module:
        """Return ``net`` with the operator in it, changed in place; its weights are drawn from torch's generator.

        Raises SpecError if the operator fits nowhere; ``net`` is then unchanged.
        """


@dataclass(frozen=True)
class SearchStep:
    """A stored step of a search: its actions, without the states before and after the step.

    Attributes:
        name: a text for people, different for all steps from a state.
        actions: words for the changes, with the same meaning in all states; equal actions share estimates (AMAF).
        steps: the number of the operator's steps in this step. A search may combine or split the operator's steps.
        words: words with counts, from which a search estimates an operator's reward. Counts of equal words are added.
            By default, each action counts once.
    """

    name: str
    actions: tuple[str, ...]
    steps: int = field(default=1, kw_only=True)
    words: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)

    @property
    def counted(self) -> tuple[tuple[str, int], ...]:
        """The words, or the actions if there are no words."""
        return self.words or tuple((action, 1) for action in self.actions)


class OperatorSpace(Protocol):
    """The operators that a search can find for some layers of a network; its ``str`` is a short description."""

    @property
    def wants(self) -> str:
        """The wishes that every operator must meet, as text for people; empty without wishes."""

    def root(self, accepts: Callable[[Any], bool]) -> State:
        """Return the first state of the space. Complete operators that ``accepts`` refuses are not in the space."""

    def known(self, root: State) -> Mapping[str, Operator]:
        """Return the known operators that are in the space of ``root``, by name and in the space's own form."""

    def name_of(self, operator: Any) -> str:
        """Return a key that is equal for operators that compute the same function; a search compares these keys.

        Mirror images may have equal keys too.
        """

    def lower(self, spare_flops: int) -> None:
        """Lower the limit of the FLOPs of the operators in all sites, from now on.

        ``accepts`` refuses operators above the limit. A space with a budget must reduce its budget.
        """

    def probe(self, operator: Any) -> Mapping[str, float] | None:
        """Estimate the quality of an operator without training, as numbers of 0 or more; None without a probe.

        A call takes milliseconds, and repeated calls return equal numbers. ``score``, from 0 to about 1, ranks
        operators; 1 is the score of the replaced layers.
        """
        return None


@dataclass(frozen=True)
class SpaceRequest:
    """The request by which a search asks a system for a space.

    Attributes:
        sites: the layers to replace.
        strides: how the strides of the layers are applied.
        spare_flops: the upper bound of the FLOPs of the operators in all sites together, for one example.
        coefficients, occurrences, limits: the user's settings, as in ``SearchSettings``; a system refuses unknown
            names.
        weight_limits: which limits of occurrences apply to the dimensions of weights, in systems that have such limits:
            ``primary`` or ``free``.
        wants: the wishes that every operator must meet, in the system's notation. None: the layers' mixing properties;
            empty: no wishes.
        drawn: called with the key of every complete operator that a search draws, before ``wants`` is checked. The
            funnel of a search counts the calls of ``drawn``.
        wished: called with the key of each operator that meets ``wants``, before its FLOPs are checked. If a space
            never calls ``wished``, calls of ``accepts`` are counted instead.
        options: the system's own options as text, by the names of its :attr:`Optioned.space_options`.
        network: builds the network without weights and returns it with its example (:func:`syno_lab.alpha.trace`), for
            a system whose operators are whole networks. None: only the layers are known.
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


def _nothing(request: Any, data: Any) -> list[Any]:
    return []


@dataclass(frozen=True)
class Pane:
    """A pane: a form of an operator for people, computed when the user opens it.

    Attributes:
        read: returns plain data for the browser (:mod:`syno_lab.panes.data`) from a :class:`syno_lab.panes.Asked`;
            raises SynoError if there is nothing to show.
        depends: the names of the fields of ``Asked``, besides the operator, that change the data.
        exports: returns the forms of the pane's files from ``Asked`` and the data (:mod:`syno_lab.panes.forms`).
        texts: returns the texts of a page without Jupyter from ``Asked`` and the data, for a pane shown at once.
        title: the text on the pane's tab; empty: the pane's name.
    """

    read: Callable[[Any], PaneData]
    depends: tuple[str, ...] = ()
    exports: Callable[[Any, Any], list[Form]] = _nothing
    texts: Callable[[Any, Any], Sequence[str]] = _nothing
    title: str = ""


@dataclass(frozen=True)
class PrimitiveCard:
    """The card of a primitive: a page that describes one primitive of a system.

    Attributes:
        name: the name of the primitive in its system.
        text: the complete card: the primitive's notation, inputs, outputs, the cases that it refuses, and its source.
        words: the text alternative of the picture.
        line: the inputs and outputs of the primitive, in one line.
        draw: returns the picture as SVG.
    """

    name: str
    text: str
    words: str
    line: str
    draw: Callable[[], str]


@dataclass(frozen=True)
class TracedStep:
    """A step of an operator, for a comparison with the steps of other operators.

    Attributes:
        kind: its primitive. Where operators differ, only steps of one kind are shown side by side.
        words: the step in words, for people.
        key: equal for steps with the same effect on the same inputs, within one call of :meth:`Traced.traces`.
        takes: the keys of the step's inputs; steps without common inputs are not shown side by side.
        ids: the nodes of the picture that show this step.
    """

    kind: str
    words: str
    key: int
    takes: frozenset[int] = frozenset()
    ids: tuple[str, ...] = ()


class System(Protocol):
    """A system of operators, with the members that every system has.

    All methods except :meth:`read` accept only operators of this system. The protocols below are optional: a system
    implements some of them, and callers check them with ``isinstance``. A subclass inherits the methods that have a
    body.
    """

    @property
    def format(self) -> str:
        """The ``format`` in the JSON of this system's operators."""

    @property
    def title(self) -> str:
        """The system's name for people, such as ``pGraphs``."""

    def read(self, text: str | bytes) -> Operator:
        """Read the operator of a JSON text. Reading checks the text and runs no code from it.

        Raises FormatError; its line names the expected value, the found value, and where it was found.
        """

    def summary(self, text: str | bytes) -> str:
        """Describe the operator of a JSON text in a few words for a table; read only the necessary fields.

        Raises FormatError if the text is no JSON of this system.
        """
        return str(self.read(text))

    @property
    def known(self) -> Mapping[str, Callable[[], Operator]]:
        """Known operators by name."""

    def recognise(self, operator: Any) -> str | None:
        """Return the name in :attr:`known` of an operator that is equal up to the names of variables, else None."""
        return next((name for name, make in self.known.items() if make() == operator), None)

    def placement(self, operator: Any, sites: Sequence[Site], strides: Strides) -> Placement:
        """Return the placement that replaces the layers ``sites`` of a network by the operator."""

    def traits(self, operator: Any, binding: Binding) -> Mapping[str, int]:
        """Return traits: numbers from 0 up by word, similar for operators with similar functions; {} without traits."""

    def traffic(self, operator: Any, binding: Binding) -> int:
        """Return the number of elements of all tensors that a forward pass creates, including the output."""
        elements: int = operator.traffic(binding)
        return elements

    def example_binding(self, operator: Any) -> dict[str, int]:
        """Return the sizes of all variables with which a view shows the operator by default.

        Raises SpecError if there are no valid sizes.
        """
        return operator.complete_binding()

    def small_binding(self, operator: Any) -> dict[str, int]:
        """Return small sizes for fingerprints that distinguish operators: all different, if the operator allows it."""
        return self.example_binding(operator)

    @property
    def panes(self) -> Mapping[str, Pane]:
        """The forms of an operator that a view can show, by names among :data:`syno_lab.panes.NAMES`.

        ``graph`` is first. The second form is shown beside ``graph`` at once, so its data should be fast to compute.
        """


# -- optional protocols ----------------------------------------------------------------------------------------------


@runtime_checkable
class OfLayers(Protocol):
    """A system whose operators replace a network's layers."""

    def binding_for(
        self, operator: Any, named: Binding, input_sizes: Sequence[int], output_sizes: Sequence[int]
    ) -> dict[str, int]:
        """Return the sizes of the operator's variables for a layer of these shapes. The system interprets the axes.

        ``named`` are the layer's sizes by their names: N, C_in, C_out, H, W, s, and for a convolution window_h and
        window_w. The first axis is the batch, or the positions. Raises SpecError if the operator does not fit.
        """


@runtime_checkable
class OfNetworks(Protocol):
    """A system whose operators are whole networks, even if a request names layers."""

    def network_costs(self, operator: Any) -> tuple[int, int]:
        """Return the FLOPs and parameters of the network for one example."""


@runtime_checkable
class ComputesLayers(Protocol):
    """A system that can express layers as operators."""

    def for_layer(self, site: Site) -> tuple[Operator, dict[str, int]]:
        """Return an operator that computes a network's layer for one example, and the sizes of all its variables.

        Raises SpecError, with a line that begins with the layer's name, if there is no such operator.
        """


@runtime_checkable
class Searched(Protocol):
    """A system with a space that can be searched."""

    def space(self, request: SpaceRequest) -> OperatorSpace:
        """Return the space that is searched for these layers. Raises SpecError if the layers have no space."""


@runtime_checkable
class Ruled(Searched, Protocol):
    """A system whose searches accept rules of the user's own."""

    def ruled_space(self, request: SpaceRequest, rules: Sequence[OwnRule]) -> OperatorSpace:
        """Return the space of the operators that have no step that a rule refuses."""


@runtime_checkable
class Optioned(Searched, Protocol):
    """A system whose space has options of its own."""

    @property
    def space_options(self) -> Mapping[str, Sequence[str]]:
        """The options, each with its values; the first value is the default."""


@runtime_checkable
class Mixing(Protocol):
    """A system that reports the mixing property of αNAS for its operators."""

    def mixing(self, operator: Any, binding: Binding) -> Pairing:
        """Return the pairs of an output axis and an input axis at these sizes, with their marks (αNAS, section 3.1).

        Raises SpecError if the pairing cannot be determined at these sizes.
        """

    def is_linear(self, operator: Any) -> bool:
        """Return whether the operator counts as linear in its input."""


@runtime_checkable
class OfPrimitives(Protocol):
    """A system whose operators consist of primitives."""

    def cards(self) -> Mapping[str, PrimitiveCard]:
        """Return the cards of the system's primitives by name."""


@runtime_checkable
class StandsFor(Protocol):
    """A system with values that are not operators but represent operators."""

    def operator_of(self, value: Any) -> Operator | None:
        """Return the operator that a value of this system represents; None for all other values."""


@runtime_checkable
class FitsPlaces(Protocol):
    """A system whose operators store sizes for the sites of a network."""

    def places(self, operator: Any) -> Mapping[str, Mapping[str, int]]:
        """Return the sites of a network for which the operator has sizes: the name of each site, and the sizes."""


@runtime_checkable
class Pools(Protocol):
    """An operator whose modules can compute an average pooling behind it too, in fewer operations."""

    #: The method of a module that ``to_torch(binding, pool=(2, 2))`` returns, if it computes the pooling too.
    pools_in: Literal["pooled"]


def with_pool(operator: Any, pool: tuple[int, int] | None) -> dict[str, Any]:
    """Return the arguments of ``to_torch`` and ``to_torch_source`` for a pooling behind an operator of any system."""
    return {"pool": pool} if pool is not None and isinstance(operator, Pools) else {}


@runtime_checkable
class Traced(Protocol):
    """A system whose operators consist of steps."""

    def traces(self, values: Sequence[Any]) -> Sequence[Sequence[TracedStep]]:
        """Return the steps of several operators, or of states of a session, with equal keys for equal steps."""


@runtime_checkable
class Stepwise(Protocol):
    """A system whose operators are built by steps."""

    @property
    def construction(self) -> Construction[Any, Any, Any]:
        """The construction: all functions that sessions, steppers and the explorer need."""
