"""Several systems' spaces below one root: the first step of a search names the system.

Keys, actions, traits and names of a space contain the system's title, so that no two systems are confused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from syno_lab.protocol import Operator, OperatorSpace
from syno_lab.search.protocol import Child, State, Step, Taken
from syno_lab.systems import space_of

if TYPE_CHECKING:
    from syno_lab.protocol import SpaceRequest, System


class JointSpace(OperatorSpace):
    """The operators of several systems for the layers of a request.

    All systems have equal weight before the first reward. Raises SpecError if a system has no space for the layers.
    """

    def __init__(self, systems: Sequence[System], request: SpaceRequest, rules: Sequence[Any] = ()) -> None:
        self._titles = {system.format: system.title for system in systems}
        self.spaces: dict[str, OperatorSpace] = {
            system.format: space_of(
                system,
                replace(
                    request,
                    drawn=_with_title(request.drawn, system.title),
                    wished=_with_title(request.wished, system.title),
                ),
                rules,
            )
            for system in systems
        }

    def __str__(self) -> str:
        return "; ".join(f"{self._titles[name]}: {space}" for name, space in self.spaces.items())

    @property
    def wants(self) -> str:
        """Return the wishes of the systems' spaces; if they differ, with the systems' titles."""
        wants = {self._titles[name]: space.wants for name, space in self.spaces.items()}
        if len(set(wants.values())) == 1:
            return next(iter(wants.values()))
        return "; ".join(f"{title}: {text or 'nothing'}" for title, text in wants.items())

    def root(self, accepts: Callable[[Any], bool]) -> JointRoot:
        """Return the state before the system is chosen."""
        return JointRoot({name: space.root(accepts) for name, space in self.spaces.items()}, self._titles)

    def known(self, root: State) -> Mapping[str, Operator]:
        """Return the known operators of all systems; the system's title follows each name."""
        assert isinstance(root, JointRoot)
        return {
            f"{known} ({self._titles[name]})": operator
            for name, space in self.spaces.items()
            for known, operator in space.known(root.roots[name]).items()
        }

    def name_of(self, operator: Operator) -> str:
        """Return the system's title and the operator's name in this system's space."""
        return f"{self._titles[operator.format]} {self.spaces[operator.format].name_of(operator)}"

    def lower(self, spare_flops: int) -> None:
        """Lower the limits of all spaces, as :meth:`.OperatorSpace.lower` describes."""
        for space in self.spaces.values():
            space.lower(spare_flops)

    def probe(self, operator: Operator) -> Mapping[str, float] | None:
        """Return the probe of the operator's own space. Scores are shares of the same layers, and thus comparable."""
        return self.spaces[operator.format].probe(operator)


def _with_title(callback: Callable[[Hashable], None], title: str) -> Callable[[Hashable], None]:
    return lambda key: callback((title, key))


@dataclass(frozen=True, eq=False)
class JointRoot:
    """The state before the system is chosen.

    Attributes:
        roots: the first states of the systems' spaces, by the systems' formats.
        titles: the titles of the systems, by their formats.
    """

    roots: Mapping[str, State]
    titles: Mapping[str, str]
    key = "root"
    is_complete = False

    def children(self) -> Sequence[Child]:
        """Return one child for each system."""
        return [Taken(self._into(name)) for name in self.roots]

    def operator(self) -> None:
        """Return None, because this state is not complete."""

    def traits(self) -> Mapping[str, int]:
        """Return no traits."""
        return {}

    def towards(self, operator: Any) -> Sequence[Step]:
        """Return the step that names the operator's system."""
        return [self._into(operator.format)] if operator.format in self.roots else ()

    def _into(self, name: str) -> Step:
        title = self.titles[name]
        return Step(title, (title,), _Within(title, self.roots[name]), steps=0)


@dataclass(frozen=True, eq=False)
class _Within:
    """A state of one system's space."""

    title: str
    state: State

    @property
    def key(self) -> Hashable:
        return self.title, self.state.key

    @property
    def is_complete(self) -> bool:
        return self.state.is_complete

    def children(self) -> Sequence[Child]:
        return [_Below(self, child) for child in self.state.children()]

    def operator(self) -> Any | None:
        return self.state.operator()

    def traits(self) -> Mapping[str, int]:
        return {f"{self.title}: {word}": number for word, number in self.state.traits().items()}

    def towards(self, operator: Any) -> Sequence[Step]:
        return [self.step(step) for step in self.state.towards(operator)]

    def step(self, inner: Step) -> Step:
        """Convert a step of the system's space to a step of the joint space."""
        actions = tuple([f"{self.title}: {action}" for action in inner.actions])
        words = tuple([(f"{self.title}: {word}", number) for word, number in inner.words])
        return replace(inner, actions=actions, words=words, state=_Within(self.title, inner.state))


@dataclass(frozen=True)
class _Below:
    """A child in one system's space."""

    before: _Within
    child: Child

    @property
    def weight(self) -> float:
        return self.child.weight

    def steps(self) -> Sequence[Step]:
        return [self.before.step(step) for step in self.child.steps()]
