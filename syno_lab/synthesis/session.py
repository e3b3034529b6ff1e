"""A synthesis by hand with its history: what the stepper shows, without any notebook in it.

The history is one line of states with a cursor. Taking a step, starting over and loading an operator all append to the
line (and drop what was ahead of the cursor), so everything can be undone; undo, redo and jump only move the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syno_lab.errors import PrimitiveError, SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.recognise import recognise

Known = Mapping[str, Callable[[], Operator]]


@dataclass(frozen=True)
class Entry:
    """One place in the history.

    Attributes:
        state: the pGraph there.
        step: the step that led to it, None for a beginning.
        note: why it begins here: ``start``, ``reset`` or ``load conv2d``; empty after a step.
        operator: the operator that was given, where it was; it says how a complete state matches the input.
    """

    state: State
    step: Step | None = None
    note: str = ""
    operator: Operator | None = None


class Session:
    """A state to step on from, and the way that led to it.

    Args:
        start: a spec (begin with its output), a partial pGraph, or an operator (begin with its last step).
        known: operators that :meth:`load` finds by name and :attr:`name` recognises.
    """

    def __init__(self, start: Spec | State | Operator, known: Known | None = None) -> None:
        self.known: Known = dict(known or {})
        self._entries = _line(start, "start")
        self._position = len(self._entries) - 1

    # -- where we are ------------------------------------------------------------------------------------------------

    @property
    def history(self) -> tuple[Entry, ...]:
        """All places, those undone included."""
        return self._entries

    @property
    def position(self) -> int:
        """The cursor: the place in :attr:`history` that is shown."""
        return self._position

    @property
    def state(self) -> State:
        """The pGraph at the cursor."""
        return self._entries[self._position].state

    @property
    def can_undo(self) -> bool:
        """Whether there is a place before the cursor."""
        return self._position > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is a place after the cursor."""
        return self._position < len(self._entries) - 1

    @property
    def is_complete(self) -> bool:
        """Whether the pGraph at the cursor is an operator."""
        return self.state.is_complete

    @property
    def operator(self) -> Operator:
        """The operator at the cursor: the one that was loaded, or the state's first match with the input.

        Raises:
            PrimitiveError: when the state is not complete.
        """
        return self._entries[self._position].operator or self.state.operator()

    @property
    def name(self) -> str | None:
        """The known operator that this is, up to the names of variables; None for another or an incomplete one."""
        return recognise(self.operator, self.known) if self.is_complete else None

    # -- moving ------------------------------------------------------------------------------------------------------

    def apply(self, step: Any) -> State:
        """Take a step (a :class:`Step` or a candidate), canonical or not.

        Raises:
            PrimitiveError: when Table 1 does not allow it; nothing has changed then.
        """
        step = getattr(step, "step", step)
        self._append((Entry(self.state.apply(step), step),))
        return self.state

    def undo(self) -> State:
        """Back by one place.

        Raises:
            SynoError: at the beginning.
        """
        if not self.can_undo:
            raise SynoError("nothing to undo: this is the beginning of the history")
        return self.jump(self._position - 1)

    def redo(self) -> State:
        """Forth by one place.

        Raises:
            SynoError: at the end.
        """
        if not self.can_redo:
            raise SynoError("nothing to redo: this is the end of the history")
        return self.jump(self._position + 1)

    def jump(self, position: int) -> State:
        """To any place of the history.

        Raises:
            SynoError: for a place that does not exist.
        """
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(self._entries):
            raise SynoError(
                f"no place {position!r} in the history: expected a number from 0 to {len(self._entries) - 1}"
            )
        self._position = position
        return self.state

    def reset(self) -> State:
        """Begin again with the output of the spec at the cursor; what was before can be had back by :meth:`undo`."""
        self._append((Entry(State.root(self.state.spec), note="reset"),))
        return self.state

    def load(self, operator: str | Operator, *, at_start: bool = False) -> State:
        """Append an operator step by step, and go to its end, or to its start in order to replay it by :meth:`redo`.

        Args:
            operator: an operator, or the name of a known one.
            at_start: whether the cursor is left at the operator's first place.

        Raises:
            SynoError: for an unknown name.
        """
        note = "load"
        if isinstance(operator, str):
            if operator not in self.known:
                names = ", ".join(sorted(self.known)) or "none"
                raise SynoError(f"unknown operator {operator!r}; known are {names}")
            note = f"load {operator}"
            operator = self.known[operator]()
        start = self._position + 1
        self._append(_line(operator, note))
        return self.jump(start) if at_start else self.state

    def _append(self, entries: tuple[Entry, ...]) -> None:
        self._entries = self._entries[: self._position + 1] + entries
        self._position = len(self._entries) - 1


def _line(start: Spec | State | Operator, note: str) -> tuple[Entry, ...]:
    """The places on the way to ``start``, from the output of its spec."""
    if isinstance(start, Spec):
        return (Entry(State.root(start), note=note),)
    if not isinstance(start, State | Operator):
        raise PrimitiveError(f"expected a Spec, a State or an Operator to start from, found {type(start).__name__}")
    state = State.root(start.spec)
    entries = [Entry(state, note=note)]
    for step in start.steps:
        state = state.apply(step)
        entries.append(Entry(state, step))
    if isinstance(start, Operator):
        last = entries[-1]
        entries[-1] = Entry(last.state, last.step, last.note, start)
    return tuple(entries)
