"""The base of all widgets: it answers the browser's messages, and keeps a static picture beside the widget."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Self

import anywidget
import msgspec
import traitlets as t

from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import printable, quoted
from syno_widgets.scripts import joined
from syno_widgets.standalone import page
from syno_widgets.static import Bundle, StaticOutput
from syno_widgets.working import GRACE_S, Work, Works

_LOG = logging.getLogger(__name__)
_MOST_WORDS = 300  # characters of a trait's own message
_LARGEST = 1 << 53


class UnfitError(SpecError, t.TraitError):
    """A value that a trait cannot have. As it is a TraitError, what a page has set is taken back."""


def validate(*names: str) -> Callable[[Callable[[Any, dict[str, Any]], Any]], Any]:
    """Decorates the method of a view that checks these traits; its errors become :class:`UnfitError`."""

    def decorated(check: Callable[[Any, dict[str, Any]], Any]) -> Any:
        @wraps(check)
        def checked(self: Any, proposal: dict[str, Any]) -> Any:
            try:
                return check(self, proposal)
            except SynoError as error:
                raise UnfitError(str(error)) from error

        return t.validate(*names)(checked)

    return decorated


class View(anywidget.AnyWidget):
    """A widget that carries out messages, each with a number in ``request``, and has a static output.

    A class of its own says in ``_noun`` what it is in messages, in ``_request`` what messages are, in ``_words`` what
    stands in place of it where no widget can be shown, in ``_files`` and ``_styles`` what its script and style are made
    of, in ``_options`` which traits may be given when it is made, and writes :meth:`_carry_out` and :meth:`_bundle`.

    What may take over a second goes through ``_works`` (:mod:`syno_widgets.working`): the kernel answers other cells
    meanwhile, the page shows it with a button that cancels it, and the latest request wins. A message
    ``cancel_work`` is answered here, for all views.
    """

    _noun: ClassVar[str]
    _request: ClassVar[type[msgspec.Struct]]
    _words: ClassVar[str]
    _files: ClassVar[tuple[str, ...]]
    _styles: ClassVar[tuple[str, ...]]
    _options: ClassVar[tuple[str, ...]] = ()
    _lock: threading.RLock
    _works: Works
    _handled: int

    live = t.Bool(True, read_only=True).tag(sync=True)
    """Whether there is a kernel to ask; false on a page that stands alone."""

    error = t.Unicode(read_only=True).tag(sync=True)
    """One line: why the last request was refused, or why the data could not be read; else empty."""

    answered = t.Int(0, read_only=True).tag(sync=True)
    """The number of the last request carried out or refused, so that the browser notices a kernel that is gone."""

    running = t.Dict(read_only=True).tag(sync=True)
    """The work beside the kernel's main thread: ``what``, and ``since`` in seconds of the epoch; else empty."""

    static_id = t.Unicode(read_only=True).tag(sync=True)
    """Marks the output with the static picture, which the live widget hides."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Make the lock before ``__init__``: a view that ``__init__`` refuses is closed as well."""
        made: Self = super().__new__(cls, *arguments, **options)
        made._lock = threading.RLock()  # threads and the browser's messages write the same traits
        made._works = Works(made._lock, made._show_running, made._cancelled)
        made._handled = 0
        return made

    def __init__(self) -> None:
        super().__init__()
        self.set_trait("static_id", uuid.uuid4().hex)
        self._static = StaticOutput(self.static_id)

    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> None:
        """Raises TypeError for an unknown option, as Python does."""
        for option in options:
            if option not in cls._options:
                raise TypeError(
                    f"{cls.__name__}: unexpected keyword argument {option!r}; known are {', '.join(cls._options)}"
                )

    def _set_options(self, options: dict[str, Any]) -> None:
        """Set the first values of traits. Raises SynoError for a value that does not fit."""
        try:
            for option, value in options.items():
                setattr(self, option, value)
        except UnfitError:
            raise
        except t.TraitError as error:
            raise SpecError(f"{type(self).__name__}: {printable(str(error), _MOST_WORDS)}") from None

    # -- from the browser --------------------------------------------------------------------------------------------

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take the values of traits that the page has set; one that does not fit is refused in :attr:`error`."""
        try:
            super().set_state(sync_data)
        except t.TraitError as wrong:
            self.set_trait("error", printable(str(wrong), _MOST_WORDS))
            self.send_state([name for name in sync_data if self.has_trait(name)])

    def handle(self, content: Any) -> None:
        """Carry out one message; every error becomes one line in :attr:`error`.

        Work that the message begins is waited for a moment; then it goes on beside us, and is answered at its end.
        """
        number = content.get("request", 0) if isinstance(content, dict) else 0
        self._handled += 1
        this, error = self._handled, ""
        work: Work | None = None
        try:
            if isinstance(content, dict) and content.get("kind") == "cancel_work":
                error = _cancelled_line(self._works.cancel())
            else:
                work = self._carry_out(msgspec.convert(_plain(content), self._request))
        except SynoError as refused:
            error = str(refused)
        except msgspec.ValidationError as wrong:
            error = (
                f"the browser sent a message that the {self._noun} does not know: {printable(str(wrong), _MOST_WORDS)}"
            )
        except Exception as unforeseen:  # noqa: BLE001 the widget must live on; the log has the whole story
            error = self._unforeseen(unforeseen, content)
        if work is None:
            self._answer(number, error)
            return
        begun = work
        try:
            if not begun.wait(GRACE_S):
                begun.tell()
                if begun.is_rest:
                    self._answer(number, "")
        except KeyboardInterrupt:
            self._answer(number, _cancelled_line(self._works.cancel(begun)))
        begun.then(lambda: self._answer_late(this, number, begun))

    def _answer(self, number: object, error: str) -> None:
        with self._lock, self.hold_sync():
            self.set_trait("error", error)
            self.set_trait("answered", number if isinstance(number, int) else 0)

    def _answer_late(self, this: int, number: object, work: Work) -> None:
        """Say how work has ended, unless it was cancelled or something else took its place."""
        if work.should_stop():
            return
        error = ""
        if isinstance(work.error, SynoError):
            error = str(work.error)
        elif work.error is not None:
            error = self._unforeseen(work.error, work.what)
        if this == self._handled:
            self._answer(number, error)
        elif error:
            self.set_trait("error", error)

    def cancel(self) -> None:
        """Cancel the work beside the main thread; the view still shows the old data."""
        self._works.cancel()

    def close(self) -> None:
        """Take the view off the page and cancel its work."""
        self._works.close()
        super().close()

    def _show_running(self, what: dict[str, Any]) -> None:
        self.set_trait("running", what)

    def _cancelled(self, work: Work) -> None:
        """Show that work was cancelled; called under the lock."""

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        self.handle(content)

    def _carry_out(self, request: Any) -> Work | None:
        """Do what a message of the kind ``_request`` asks for, or begin to and return that work.

        Raises:
            SynoError: for what cannot be done.
        """
        raise NotImplementedError

    def _unforeseen(self, error: Exception, what: object) -> str:
        """An error that is the lab's fault: with its traceback in the log, as one line on the page."""
        _LOG.error("%s: %s", self._noun, quoted(what, _MOST_WORDS), exc_info=error)
        return printable(f"{type(error).__name__}: {error}".splitlines()[0], _MOST_WORDS)

    # -- outputs -----------------------------------------------------------------------------------------------------

    def to_html(self, path: str | Path | None = None) -> str:
        """A page that stands alone with all that is shown now: nothing is fetched, no kernel is needed.

        Args:
            path: where to write it; None only returns it.

        Raises:
            SynoError: when what is shown cannot be read, or the file not written.
        """
        with self._lock:
            state = {**self._page_state(), "live": False, "error": "", "running": {}}
            static = self._bundle()["text/html"]
            text = page(self._page_title(), state, joined(*self._files), joined(*self._styles), static)
        if path is not None:
            try:
                Path(path).write_text(text, encoding="utf-8")
            except OSError as error:
                raise SynoError(f"cannot write {path}: {error.strerror or error}") from None
        return text

    def _page_title(self) -> str:
        """The title of :meth:`to_html`'s page."""
        raise NotImplementedError

    def _page_state(self) -> dict[str, Any]:
        """The data of :meth:`to_html`'s page: the traits that the views declare, not the traits of every widget."""
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, View)]
        names = {name for kind in kinds for name in kind.class_own_traits(sync=True) if not name.startswith("_")}
        return {name: getattr(self, name) for name in sorted(names)}

    def _bundle(self) -> Bundle:
        """What stays on the page without a kernel."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, with its picture and its words for pages that know no widgets."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        static = self._bundle()
        return {**data, **{kind: static[kind] for kind in ("image/svg+xml", "text/plain") if kind in static}}, metadata

    def _ipython_display_(self) -> None:
        """Two outputs: the widget, and the picture that it hides while it lives."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display({**data, "text/plain": self._words}, metadata=metadata, raw=True)
        self._static.show_bundle(self._bundle())


def _plain(content: Any) -> Any:
    """A message, of text that can be written and numbers that a page has (JavaScript's are whole up to 2**53).

    Raises:
        SynoError: for any other.
    """
    if isinstance(content, dict):
        return {_plain(name): _plain(value) for name, value in content.items()}
    if isinstance(content, list):
        return list(map(_plain, content))
    if isinstance(content, str) and any("\ud800" <= sign <= "\udfff" for sign in content):
        raise SynoError("expected text in the browser's message, found half a character")
    if isinstance(content, int) and abs(content) > _LARGEST:
        raise SynoError("expected numbers up to 2**53 in the browser's message, found a larger one")
    return content


def _cancelled_line(works: list[Work]) -> str:
    return "; ".join(f"cancelled: {work.what}" for work in works)
