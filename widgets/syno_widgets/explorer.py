"""The search space around a state, and the tree of a search while it grows: ``Explorer(spec)``, ``Explorer(lab)``.

:mod:`syno_lab.reports` computes all facts; a chosen node opens in the stepper.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import traitlets as t
from ipywidgets import widget_serialization

from syno_lab.effort import Effort
from syno_lab.errors import SpecError, StoppedError, StoreError, SynoError
from syno_lab.inputs import count_of, is_file
from syno_lab.jobs import Lab
from syno_lab.reports import LabReader, Reading
from syno_lab.reports.icicle import COLOURS, Icicle, icicle, icicle_sketch, listed, way_to
from syno_lab.reports.rows import TrialRow
from syno_lab.reports.trees import (
    Moment,
    SearchTree,
    improvements,
    moment,
    read_tree,
    replayed,
    tree_file,
    trial_below,
)
from syno_lab.search.branches import Branching
from syno_lab.sessions.around import Around
from syno_lab.sessions.session import Session, session_of
from syno_lab.systems import known_operators, named, read_operator, system_for
from syno_widgets.looking import LookingView
from syno_widgets.scripts import joined, module
from syno_widgets.static import Bundle, static_bundle
from syno_widgets.stepper import Stepper
from syno_widgets.view import validate
from syno_widgets.working import GRACE_S, Work

_FILES = ("shared.js", "explorer.js")
_STYLES = ("shared.css", "operator_graph_dark.css", "explorer.css")
_MOVES_S = 15.0  # A tree is read often for these seconds after its last change.
_FIRST_S = 1.0  # Seconds that the cell waits for the first steps of a space.
_SLICE_S = 0.5  # Seconds between two pictures of a growing space.
SPACE = "space"


class ExplorerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: ``open`` opens a node in the stepper; ``around`` shows the space around the node.
        request: the browser's number for the message; the trait ``answered`` returns it.
        key: the key of the node.
    """

    kind: Literal["open", "around"]
    request: int
    key: str


class Explorer(LookingView):
    """The space around a state, or the tree of a search of a lab.

    Args:
        start: a spec, a state (a partial pGraph) or an operator: the space around it. Or an open lab, or the folder (or
            store file) of a lab: the trees of its searches, which may begin later.
        rules: rules of your own, which refuse steps in the space around a state and in the stepper that opens there, as
            for :class:`.Stepper`. Rules do not change the tree of a search.
        options: first values of the traits ``source``, ``root``, ``chosen``, ``depth``, ``colour``, ``filter``,
            ``pruned``, ``upto``.

    Raises:
        SynoError: an option has an invalid value.
    """

    _esm = module(*_FILES)
    _css = joined(*_STYLES)
    _files, _styles = _FILES, _STYLES
    _options = ("source", "root", "chosen", "depth", "colour", "filter", "pruned", "upto")
    _noun = "explorer"
    _request = ExplorerRequest
    _words = "The explorer, to be used in a running notebook; the picture beside it is its last."

    source = t.Unicode(help="The source.").tag(sync=True)
    """The source: ``space``, or the key of a search such as ``search:mine``; empty: the newest search."""

    root = t.Unicode(help="The node at the top of the picture.").tag(sync=True)
    """The key of the node at the top of the picture; empty: the root."""

    chosen = t.Unicode(help="The chosen node.").tag(sync=True)
    """The key of the chosen node; empty: none. :attr:`facts` describes it, :attr:`table` lists its children."""

    depth = t.Int(4, help="How many levels are shown.").tag(sync=True)
    """How many levels below :attr:`root` are shown, 1 to 16; around a state, so many levels are computed."""

    colour = t.Enum(COLOURS, "reward", help="The measure of a box's colour.").tag(sync=True)
    """The measure of a box's colour: darker for more ``reward``, ``searches`` or ``probe`` and for less ``distance``,
    or the colour of its ``primitive``."""

    filter = t.Unicode(help="Which nodes are shown.").tag(sync=True)
    """Words that a node must contain, and comparisons such as ``reward>0.5``, ``distance<=2`` or ``kind=pruned``."""

    pruned = t.Bool(True, help="Whether pruned steps are shown.").tag(sync=True)
    """Whether the space around a state includes the steps that a rule prunes."""

    upto = t.Int(0, help="After how many trials a search is shown.").tag(sync=True)
    """The number of trials after which a search is shown, in the order of proposal; 0: its current tree."""

    trials = t.Dict(read_only=True).tag(sync=True)
    """The trials that can be replayed: their ``count``, the ``best`` trials so far, and ``words`` on one trial."""

    sources = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The available sources: ``key`` and ``title``."""

    measure = t.Unicode(read_only=True).tag(sync=True)
    """The name of the nodes' distance in their system; for a search ``distance``."""

    boxes = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The picture (:class:`syno_lab.reports.icicle.Icicle`)."""

    table = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The children of the chosen node, or of the top node (:func:`syno_lab.reports.icicle.listed`)."""

    way = t.List(t.Dict(), read_only=True).tag(sync=True)
    """The nodes from the root to the chosen node, or to the top node: ``key`` and ``text``."""

    facts = t.Dict(read_only=True).tag(sync=True)
    """The chosen node: ``key``, ``words``, its pGraph as ``svg`` and in ``description``, a ``note``; empty: none."""

    headline = t.Unicode(read_only=True).tag(sync=True)
    """A summary in one line; screen readers read it out whenever it changes."""

    opened = t.Instance(Stepper, allow_none=True, read_only=True).tag(sync=True, **widget_serialization)
    """The stepper at the opened node."""

    def __init__(self, start: Any, *, rules: Sequence[Any] = (), **options: Any) -> None:
        self._check_options(options)
        self._rules = tuple(rules)
        self._is_ready = False
        self._reader: LabReader | None = None
        self._reading: Reading | None = None
        self._around: Around | None = None
        self._tree: SearchTree | None = None
        self._trials: tuple[TrialRow, ...] = ()
        self._moment: Moment | None = None
        self._seen: tuple[str, int, int] | None = None
        self._changed_at = -float("inf")
        self._drawn: Icicle | None = None
        self._first = threading.Event()  # Set when the next steps of the first state are known.
        self._is_stopped = False  # True if the space grows no further until the user asks for more.
        if isinstance(start, str | Path) and _is_lab(start):
            self._reader = LabReader(start)
        elif isinstance(start, Lab):
            self._reader = LabReader(start.folder)
        else:
            self._around = _around(start, options.get("pruned", True) is not False, self._rules)
        super().__init__()
        if self._around is not None:
            self.source, self.colour, self.depth = SPACE, "distance", 2
        self._set_options(options)
        self._is_ready = True
        self._try_to_refresh()
        if self._around is not None:
            self._grow_anew(_FIRST_S)  # its own next steps now, their next steps later
        self.on_msg(self._on_message)
        if self._reader is not None:
            self._start_looking("explorer")

    # -- from Python -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """The state (such as a pGraph) at the chosen node, or at the top node.

        Raises:
            SynoError: the search has drawn no operator below the node.
        """
        with self._lock:
            return self._session_at(self.chosen or self._top())[0].state

    def refresh(self) -> None:
        """Read the lab now, and show its newest state.

        Raises:
            SynoError: the lab cannot be read, or has no such search.
        """
        with self._lock:
            if self._reader is not None:
                self._reading = self._reader.read()
                if not self.source and self._reading.sources:
                    self.source = self._reading.sources[-1].key
            self._show_sources()
            if self.source != SPACE:
                self._read_tree()
            self._show()

    def step_from(self, key: str | None = None) -> Stepper:
        """Open a node in the stepper; in a search, redo then plays the steps to the best operator below it.

        Args:
            key: the key of the node; None: the chosen node, or the top node.

        Raises:
            SynoError: there is no such node, or the search has drawn no operator below it.
        """
        with self._lock:
            new = Stepper.showing(self._session_at(key or self.chosen or self._top())[0])
            old = self.opened
            self.set_trait("opened", new)
        if old is not None:
            old.close()
        return new

    def look_around(self, key: str | None = None) -> None:
        """Show the space around a node instead; the arguments and errors are as of :meth:`step_from`."""
        with self._lock:
            session, _ = self._session_at(key or self.chosen or self._top())
            self._around = _around(session.state, self.pruned, self._rules)
            self._is_ready = False
            try:
                with self.hold_sync():
                    self.root = self.chosen = self.filter = ""
                    self.source, self.colour, self.depth = SPACE, "distance", 2
            finally:
                self._is_ready = True
            self._show_sources()
            self._show()
        self._grow_anew(GRACE_S)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the space around a state has grown to :attr:`depth` levels; return whether it has."""
        work = self._works.of()
        return work is None or work.wait(timeout_s)

    def close(self) -> None:
        """Stop reading, and remove the explorer from the page. Searches continue."""
        super().close()
        with self._lock:
            if self.opened is not None:
                self.opened.close()
            if getattr(self, "_reader", None) is not None:  # absent if the constructor refused the arguments
                assert self._reader is not None
                self._reader.close()

    # -- traits -------------------------------------------------------------------------------------------------------

    def _read_tree(self) -> None:
        """Read the tree of the search if its file has changed since the last reading."""
        reading, source = self._reading, None
        if reading is not None:
            source = next((s for s in reading.sources if self.source in (s.key, s.name)), None)
        self._trials, self._moment = (), None
        if reading is None or source is None:
            self._tree = self._seen = None
            if self.source:
                raise StoreError(f"no search {self.source!r} in this lab")
            return
        self._trials = replayed(reading.of(source.key))
        if self._trials and self.upto:
            self._moment = moment(self._trials, min(self.upto, len(self._trials)))
        file = tree_file(reading.folder, source.name)
        try:
            status = file.stat()
        except OSError:
            self._tree = self._seen = None
            if not self._trials:
                raise StoreError(
                    f"the search {source.name!r} has no tree: it is no Monte Carlo tree search, and has no trials yet"
                ) from None
            self._moment = self._moment or moment(self._trials, len(self._trials))
            return
        seen = (source.key, status.st_ino, status.st_mtime_ns)
        if seen != self._seen:
            self._tree = read_tree(file)
            self._seen = seen
            self._changed_at = time.monotonic()

    def _branching(self) -> Branching | None:
        if self.source == SPACE:
            return self._around
        return self._tree if self._moment is None else self._moment.tree

    def _top(self) -> str:
        branching = self._branching()
        if branching is None:
            raise StoreError("there is nothing to show yet")
        return self.root or branching.root

    def _show_sources(self) -> None:
        listed_sources = []
        if self._reading is not None:
            listed_sources = [{"key": s.key, "title": f"search {s.name}"} for s in reversed(self._reading.sources)]
        if self._around is not None:
            steps = self._around.steps
            listed_sources.append({"key": SPACE, "title": f"the space after {count_of(steps, 'step')}"})
        self.set_trait("sources", listed_sources)

    def _show(self) -> None:
        branching = self._branching()
        with self.hold_sync():
            if branching is None:
                self._drawn = None
                for name in ("boxes", "table", "way"):
                    self.set_trait(name, [])
                self.set_trait("facts", {})
                self.set_trait("headline", "No search yet.")
                return
            top = self._known(branching, self.root) or branching.root
            at = self._known(branching, self.chosen) or top
            shown = self._moment if self.source != SPACE else None
            best = () if shown is None else shown.best
            self._drawn = icicle(branching, top, self.depth, colour=self.colour, wanted=self.filter, best=best)
            count = 0 if self.source == SPACE else len(self._trials)
            words = "" if shown is None else shown.words
            self.set_trait("trials", {"count": count, "best": improvements(self._trials[:count]), "words": words})
            self.set_trait("measure", branching.branch(branching.root).measure)
            self.set_trait("boxes", msgspec.to_builtins(self._drawn.boxes))
            self.set_trait("table", listed(branching, at, self.filter))
            self.set_trait("way", way_to(branching, at))
            summary = self._around.summary() if self.source == SPACE and self._around is not None else ""
            if isinstance(branching, SearchTree):
                summary = branching.summary()
            if self.filter.strip():
                summary += f" {self._drawn.matches} fit the filter."
            self.set_trait("headline", summary)
            self._show_facts(branching)

    def _show_facts(self, branching: Branching) -> None:
        key = self._known(branching, self.chosen)
        if not key:
            self.set_trait("facts", {})
            return
        words = branching.branch(key).words
        if self.facts.get("key") == key and self.facts.get("svg") and self.facts.get("source") == self.source:
            self.set_trait("facts", {**self.facts, "words": words})
            return
        facts = {"key": key, "words": words, "svg": "", "description": "", "note": "", "source": self.source}
        try:
            session, note = self._session_at(key)
            picture = session.picture()
            facts |= {"svg": picture.svg, "description": picture.description, "note": note}
        except SynoError as error:
            facts["note"] = str(error)
        self.set_trait("facts", facts)

    @staticmethod
    def _known(branching: Branching, key: str) -> str:
        try:
            return branching.branch(key).key if key else ""
        except KeyError:
            return ""

    def _session_at(self, key: str) -> tuple[Session, str]:
        """Return a session that begins with the state at a node and can redo later steps, and a note on its source."""
        branching = self._branching()
        if branching is None or not self._known(branching, key):
            raise StoreError(f"no node {key!r} here")
        if isinstance(branching, Around):
            return branching.session(key), ""
        assert isinstance(branching, SearchTree)
        names = branching.names(key)
        trial = trial_below(self._reading.of(self.source) if self._reading is not None else (), names)
        if trial is None:
            raise StoreError("the search has drawn no operator below this node, so there is no pGraph to show")
        operator = read_operator(trial.operator)
        session = session_of(operator)
        session.restrict(self._rules)
        session.jump(min(branching.steps_taken(key), len(session.history) - 1))
        accuracy = "" if trial.accuracy is None else f", accuracy {trial.accuracy:.4g}"
        return session, f"As in {trial.label}{accuracy}, the best below it"

    # -- traits that can be set --------------------------------------------------------------------------------------

    @validate("depth")
    def _valid_depth(self, proposal: dict[str, Any]) -> int:
        value: int = proposal["value"]
        if not 1 <= value <= 16:
            raise SpecError(f"depth: expected a number from 1 to 16, found {value}")
        return value

    @validate("upto")
    def _valid_upto(self, proposal: dict[str, Any]) -> int:
        value: int = proposal["value"]
        if value < 0:
            raise SpecError(f"upto: expected a number of trials from 0 on, found {value}")
        return value

    @t.observe("source", "root", "chosen", "depth", "colour", "filter", "upto")
    def _set(self, change: dict[str, Any]) -> None:
        if not self._is_ready:
            return
        with self._lock:
            # The trees of a search and of its trials have different keys.
            if change["name"] == "source" or (change["name"] == "upto" and not (change["old"] and change["new"])):
                self._is_ready = False
                self.root = self.chosen = ""
                self._is_ready = True
                self._try_to_refresh()
            elif change["name"] == "upto":
                self._try_to_refresh()
            else:
                self._show()
        if change["name"] in ("source", "root", "depth"):
            self._is_stopped = False
        self._grow()

    @t.observe("pruned")
    def _pruned_set(self, _change: dict[str, Any]) -> None:
        if self._is_ready and self._around is not None:
            with self._lock:
                state = self._around.session().state
                self._around = _around(state, self.pruned, self._rules)
                self._show()
            self._grow_anew(GRACE_S)

    # -- the threads -------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Compute the space in a thread, one state at a time, so that the kernel stays free."""
        with self._lock:
            if self.source == SPACE and self._works.of() is None and not self._is_stopped:
                self._works.begin("looking at the space", self._look_on).tell()

    def _grow_anew(self, patience_s: float) -> None:
        """Compute another space, and wait a moment for the next steps of its first state."""
        with self._lock:
            self._works.drop()
            self._first.clear()
            self._is_stopped = False
            self._grow()
        self._first.wait(patience_s)

    def _cancelled(self, work: Work) -> None:
        self._is_stopped = True

    def _look_on(self, work: Work) -> None:
        shown_at = -float("inf")
        has_news = False
        try:
            while True:
                with work.delivering():
                    around = self._around
                    if around is None or self.source != SPACE:
                        return
                    key = around.waiting(self.depth, self._known(around, self.root) or around.root)
                    if has_news and (key is None or time.monotonic() - shown_at > _SLICE_S):
                        self._show()
                        shown_at, has_news = time.monotonic(), False
                        self._first.set()
                if key is None:
                    break
                branches = around.look(key, Effort(should_stop=work.should_stop))
                with work.delivering():
                    around.put(key, branches)
                    has_news = True
        except StoppedError:
            pass  # cancelled, or replaced by another space
        except Exception as error:  # noqa: BLE001 the explorer must stay usable; the log has the traceback
            with work.delivering():
                self._is_stopped = True
                text = str(error) if isinstance(error, SynoError) else self._unforeseen(error, "looking at the space")
                self.set_trait("error", text)
                self._first.set()  # there will be no first steps to wait for
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


def _is_lab(start: str | Path) -> bool:
    """Tell whether a text names a lab's folder or store, and not an operator by its name, file or text."""
    if isinstance(start, str) and (start.lstrip().startswith("{") or start in known_operators()):
        return not start.lstrip().startswith("{") and Path(start).is_dir()
    return not is_file(start) or Path(start).suffix == ".sqlite"


def _around(start: object, pruned: bool, rules: Sequence[Any]) -> Around:
    """Return the space around a value. Raises SpecError if no system accepts the value."""
    start = named(start).operator if isinstance(start, str | Path) else start
    try:
        system_for(start)
    except SpecError:
        raise SpecError(
            f"Explorer: expected a spec, a state, an operator, a lab or the folder of one, found {type(start).__name__}"
        ) from None
    return Around(start, pruned=pruned, rules=rules)
