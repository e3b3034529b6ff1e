"""The search space around a state, and the tree of a search while it grows: ``Explorer(spec)``, ``Explorer(lab)``.

All facts are :mod:`syno_lab.evaluate.reading`'s; a place that is chosen opens in the stepper.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
import traitlets as t
from ipywidgets import widget_serialization

from syno_lab.codegen.drawing import describe, svg
from syno_lab.errors import SpecError, StoreError, SynoError
from syno_lab.evaluate.jobs import Lab
from syno_lab.evaluate.reading import LabReader, Reading
from syno_lab.evaluate.reading.around import Around
from syno_lab.evaluate.reading.icicle import COLOURS, Branching, Icicle, icicle, icicle_sketch, listed, way_to
from syno_lab.evaluate.reading.trees import SearchTree, read_tree, steps_taken, tree_file, trial_below
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_widgets.looking import LookingView
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.stepper import Stepper

_FILES = ("shared.js", "explorer.js")
_STYLES = ("shared.css", "explorer.css")
_MOVES_S = 15.0  # so long after its last change a tree is looked at often
_SLICE_S = 0.5  # between two pictures of a space that is being looked at
SPACE = "space"


class ExplorerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: ``open`` a place in the stepper, or look ``around`` it.
        request: the browser's number for it, given back in the trait ``answered``.
        key: of the place.
    """

    kind: Literal["open", "around"]
    request: int
    key: str


class Explorer(LookingView):
    """What lies around a state, or the tree of a search of a lab.

    Args:
        start: a spec, a partial pGraph or an operator: the space around it; or an open lab, or the folder (or store
            file) of one: the trees of its searches, which need not have begun.
        options: first values of the traits ``source``, ``root``, ``chosen``, ``depth``, ``colour``, ``filter``,
            ``pruned``.

    Raises:
        SynoError: when an option does not fit.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _options = ("source", "root", "chosen", "depth", "colour", "filter", "pruned")
    _noun = "explorer"
    _request = ExplorerRequest
    _words = "The explorer, to be used in a running notebook; the picture beside it is its last."

    source = t.Unicode(help="What is shown.").tag(sync=True)
    """What is shown: ``space``, or the key of a search such as ``search:mine``; empty: the newest search."""

    root = t.Unicode(help="The place on top of the picture.").tag(sync=True)
    """The key of the place on top of the picture; empty: the first."""

    chosen = t.Unicode(help="The chosen place.").tag(sync=True)
    """The key of the chosen place; empty: none. :attr:`facts` says what is known of it, :attr:`table` what follows."""

    depth = t.Int(4, help="How many levels are shown.").tag(sync=True)
    """How many levels below :attr:`root` are shown, 1 to 16; around a state so many are looked at."""

    colour = t.Enum(COLOURS, "reward", help="What a darker box has more of.").tag(sync=True)
    """What a darker box has more of: ``reward``, ``searches``; or less of: ``distance``."""

    filter = t.Unicode(help="Which places are shown.").tag(sync=True)
    """Words that a place must hold, and comparisons such as ``reward>0.5``, ``distance<=2`` or ``kind=pruned``."""

    pruned = t.Bool(True, help="Whether pruned steps are shown.").tag(sync=True)
    """Whether the space around a state is shown with the steps that a rule prunes."""

    sources = t.List(t.Dict(), read_only=True).tag(sync=True)
    """What can be shown: ``key`` and ``title``."""

    boxes = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The picture (:class:`syno_lab.evaluate.reading.icicle.Icicle`)."""

    table = t.List(t.Dict(), read_only=True).tag(sync=True)
    """What follows the chosen place, or the one on top (:func:`syno_lab.evaluate.reading.icicle.listed`)."""

    way = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The places from the first to the chosen one, or the one on top: ``key`` and ``text``."""

    facts = t.Dict(read_only=True).tag(sync=True)
    """The chosen place: ``key``, ``words``, its pGraph as ``svg`` and in ``description``, a ``note``; empty: none."""

    headline = t.Unicode(read_only=True).tag(sync=True)
    """What there is, in one line; read out by screen readers whenever it changes."""

    opened = t.Instance(Stepper, allow_none=True, read_only=True).tag(sync=True, **widget_serialization)
    """The stepper at the place that was opened."""

    def __init__(self, start: Spec | State | Operator | Lab | str | Path, **options: Any) -> None:
        self._check_options(options)
        self._is_ready = False
        self._reader: LabReader | None = None
        self._reading: Reading | None = None
        self._around: Around | None = None
        self._tree: SearchTree | None = None
        self._seen: tuple[str, int, int] | None = None
        self._changed_at = -float("inf")
        self._drawn: Icicle | None = None
        self._grower: threading.Thread | None = None
        state = _state(start)
        if state is not None:
            self._around = Around(state, pruned=options.get("pruned", True) is not False)
        elif isinstance(start, (str, Path)):
            self._reader = LabReader(start)
        else:
            self._reader = LabReader(start.folder)  # type: ignore[union-attr]
        super().__init__()
        if state is not None:
            self.source, self.colour, self.depth = SPACE, "distance", 2
        self._set_options(options)
        self._is_ready = True
        if self._around is not None:
            self._around.grow(1)  # its own next steps at once, theirs by and by
        self._try_to_refresh()
        self._grow()
        self.on_msg(self._on_message)
        if self._reader is not None:
            self._start_looking("explorer")

    # -- from Python -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The pGraph at the chosen place, or at the one on top.

        Raises:
            SynoError: for a place of a search below which no operator was asked for.
        """
        with self._lock:
            return self._stepper_at(self.chosen or self._top())[0]

    def refresh(self) -> None:
        """Read the lab now, and show what there is.

        Raises:
            SynoError: when it cannot be read, or has no such search.
        """
        with self._lock:
            if self._reader is not None:
                self._reading = self._reader.read()
                searches = [one for one in self._reading.sources if one.kind == "search"]
                if not self.source and searches:
                    self.source = searches[-1].key
            self._show_sources()
            if self.source != SPACE:
                self._read_tree()
            self._show()

    def step_from(self, key: str | None = None) -> Stepper:
        """A place in the stepper: in a search with the rest of the best operator below it laid ahead.

        Args:
            key: the place; None: the chosen one, or the one on top.

        Raises:
            SynoError: for a place that is not there, or below which no operator was asked for.
        """
        with self._lock:
            _, stepper, _ = self._stepper_at(key or self.chosen or self._top())
            made: Stepper = stepper()
            old = self.opened
            self.set_trait("opened", made)
        if old is not None:
            old.close()
        return made

    def look_around(self, key: str | None = None) -> None:
        """Show the space around a place instead; the arguments and errors are those of :meth:`step_from`."""
        with self._lock:
            state, _, _ = self._stepper_at(key or self.chosen or self._top())
            self._around = Around(state, pruned=self.pruned)
            self._around.grow(1)
            self._is_ready = False
            try:
                with self.hold_sync():
                    self.root = self.chosen = self.filter = ""
                    self.source, self.colour, self.depth = SPACE, "distance", 2
            finally:
                self._is_ready = True
            self._show_sources()
            self._show()
        self._grow()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the space around a state is looked at as far as it will be; whether it is."""
        grower = self._grower
        if grower is not None:
            grower.join(timeout_s)
        return grower is None or not grower.is_alive()

    def close(self) -> None:
        """Stop looking, and take the explorer off the page. Searches go on."""
        super().close()
        with self._lock:
            if self.opened is not None:
                self.opened.close()
            if getattr(self, "_reader", None) is not None:  # not where the arguments were refused
                assert self._reader is not None
                self._reader.close()

    # -- what is shown -----------------------------------------------------------------------------------------------

    def _read_tree(self) -> None:
        """The tree of the search, where its file is another than the one seen last."""
        reading, source = self._reading, None
        if reading is not None:
            source = next((one for one in reading.sources if self.source in (one.key, one.name)), None)
        if reading is None or source is None or source.kind != "search":
            self._tree = self._seen = None
            if self.source:
                raise StoreError(f"no search {self.source!r} in this lab")
            return
        file = tree_file(reading.folder, source.name)
        try:
            found = file.stat()
        except OSError:
            self._tree = self._seen = None
            raise StoreError(
                f"the search {source.name!r} has no tree: only Monte Carlo tree searches have one"
            ) from None
        seen = (source.key, found.st_ino, found.st_mtime_ns)
        if seen != self._seen:
            self._tree = read_tree(file)
            self._seen = seen
            self._changed_at = time.monotonic()

    def _branching(self) -> Branching | None:
        return self._around if self.source == SPACE else self._tree

    def _top(self) -> str:
        what = self._branching()
        if what is None:
            raise StoreError("there is nothing to be seen yet")
        return self.root or what.root

    def _show_sources(self) -> None:
        found = []
        if self._reading is not None:
            found = [
                {"key": one.key, "title": f"{one.kind} {one.name}"}
                for one in reversed(self._reading.sources)
                if one.kind == "search"
            ]
        if self._around is not None:
            steps = len(self._around.state.steps)
            found.append({"key": SPACE, "title": f"the space after {steps} {'step' if steps == 1 else 'steps'}"})
        self.set_trait("sources", found)

    def _show(self) -> None:
        what = self._branching()
        with self.hold_sync():
            if what is None:
                self._drawn = None
                for name in ("boxes", "table", "way"):
                    self.set_trait(name, [])
                self.set_trait("facts", {})
                self.set_trait("headline", "No search yet.")
                return
            top = self._known(what, self.root) or what.root
            at = self._known(what, self.chosen) or top
            self._drawn = icicle(what, top, self.depth, colour=self.colour, wanted=self.filter)
            self.set_trait("boxes", self._drawn.boxes)
            self.set_trait("table", listed(what, at, self.filter))
            self.set_trait("way", way_to(what, at))
            summary = self._around.summary() if self.source == SPACE and self._around is not None else ""
            if self._tree is not None and self.source != SPACE:
                summary = self._tree.summary()
            if self.filter.strip():
                summary += f" {self._drawn.matches} fit the filter."
            self.set_trait("headline", summary)
            self._show_facts(what)

    def _show_facts(self, what: Branching) -> None:
        key = self._known(what, self.chosen)
        if not key:
            self.set_trait("facts", {})
            return
        words = what.branch(key).words
        if self.facts.get("key") == key and self.facts.get("svg") and self.facts.get("source") == self.source:
            self.set_trait("facts", {**self.facts, "words": words})
            return
        found = {"key": key, "words": words, "svg": "", "description": "", "note": "", "source": self.source}
        try:
            state, _, note = self._stepper_at(key)
            found |= {"svg": svg(state), "description": describe(state), "note": note}
        except SynoError as error:
            found["note"] = str(error)
        self.set_trait("facts", found)

    @staticmethod
    def _known(what: Branching, key: str) -> str:
        try:
            return what.branch(key).key if key else ""
        except KeyError:
            return ""

    def _stepper_at(self, key: str) -> tuple[State, Any, str]:
        """The pGraph at a place, what makes a stepper there, and where it comes from."""
        what = self._branching()
        if what is None or not self._known(what, key):
            raise StoreError(f"no place {key!r} here")
        if isinstance(what, Around):
            state = what.state_at(key)
            return state, lambda: Stepper(state), ""
        assert isinstance(what, SearchTree)
        names = what.names(key)
        trial = trial_below(self._reading.of(self.source) if self._reading is not None else (), names)
        if trial is None:
            raise StoreError("no operator was asked for below this place, so there is no pGraph to show")
        operator, taken = Operator.from_json(trial.operator), steps_taken(names)
        state = State.root(operator.spec)
        for step in operator.steps[:taken]:
            state = state.apply(step)

        def make() -> Stepper:
            stepper = Stepper.of(operator)
            stepper.jump(min(taken, len(operator.steps)))
            return stepper

        accuracy = "" if trial.accuracy is None else f", accuracy {trial.accuracy:.4g}"
        return state, make, f"as in {trial.label}{accuracy}, the best below it"

    # -- traits that can be set --------------------------------------------------------------------------------------

    @t.validate("depth")
    def _valid_depth(self, proposal: dict[str, Any]) -> int:
        value: int = proposal["value"]
        if not 1 <= value <= 16:
            raise SpecError(f"depth: expected a number from 1 to 16, found {value}")
        return value

    @t.observe("source", "root", "chosen", "depth", "colour", "filter")
    def _set(self, change: dict[str, Any]) -> None:
        if not self._is_ready:
            return
        with self._lock:
            if change["name"] == "source":
                self._is_ready = False
                self.root = self.chosen = ""
                self._is_ready = True
                self._try_to_refresh()
            else:
                self._show()
        self._grow()

    @t.observe("pruned")
    def _pruned_set(self, _change: dict[str, Any]) -> None:
        if self._is_ready and self._around is not None:
            with self._lock:
                self._around = Around(self._around.state, pruned=self.pruned)
                self._around.grow(1)
                self._show()
            self._grow()

    # -- the threads -------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Look at the space in a thread, one state at a time, so that the kernel stays free."""
        with self._lock:
            is_at_it = self._grower is not None and self._grower.is_alive()
            if self.source == SPACE and self._around is not None and not is_at_it:
                self._grower = threading.Thread(target=self._look_on, name="syno-lab explorer space", daemon=True)
                self._grower.start()

    def _look_on(self) -> None:
        shown_at, has_news = time.monotonic(), False
        while not self._closed.is_set():
            with self._lock:
                around = self._around
                if around is None or self.source != SPACE:
                    self._grower = None
                    return
                try:
                    is_more = around.grow(self.depth, self._known(around, self.root) or around.root)
                    has_news |= is_more
                    if has_news and (not is_more or time.monotonic() - shown_at > _SLICE_S):
                        self._show()
                        shown_at, has_news = time.monotonic(), False
                except Exception as error:  # noqa: BLE001 the explorer must live on; the log has the whole story
                    self._grower = None
                    self.set_trait("error", self._unforeseen(error, "looking at the space"))
                    return
                if not is_more:
                    self._grower = None
                    break
            time.sleep(0.001)  # whoever waits for the lock has it now
        self._renew_static()

    def _is_busy(self) -> bool:
        return time.monotonic() - self._changed_at < _MOVES_S

    def _pictured(self) -> object:
        return self._drawn

    # -- from the browser --------------------------------------------------------------------------------------------

    def _carry_out(self, request: ExplorerRequest) -> None:
        if request.kind == "open":
            self.step_from(request.key)
        else:
            self.look_around(request.key)

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _page_title(self) -> str:
        return f"Explorer: {self.headline}"

    def _page_state(self) -> dict[str, Any]:
        return {**super()._page_state(), "opened": None}

    def _bundle(self) -> Bundle:
        words = f"{self.headline} {self.error}".strip()
        return static_bundle(self.static_id, icicle_sketch(self._drawn or Icicle([], 0, 0), words), words)

    def __repr__(self) -> str:
        return f"<Explorer: {self.headline}>"


def _state(start: object) -> State | None:
    """The state to begin at; None for a lab. Raises SpecError for what is neither."""
    if isinstance(start, Spec):
        return State.root(start)
    if isinstance(start, Operator):
        return start.state
    if isinstance(start, State):
        return start
    if isinstance(start, (str, Path)) or hasattr(start, "folder"):
        return None
    raise SpecError(
        f"Explorer: expected a spec, a state, an operator, a lab or the folder of one, found {type(start).__name__}"
    )
