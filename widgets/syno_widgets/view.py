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
_MOST_WORDS = 300  # the most characters of a trait's own message
_LARGEST = 1 << 53


class UnfitError(SpecError, t.TraitError):
    """An invalid value of a trait. Because it is a TraitError, a value from the page is reverted."""


def validate(*names: str) -> Callable[[Callable[[Any, dict[str, Any]], Any]], Any]:
    """Decorate the method of a view that checks these traits; its errors become :class:`UnfitError`."""

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

    A subclass sets these attributes: ``_noun``, its name in messages; ``_request``, the type of its messages;
    ``_words``, the text where no widget can be shown; ``_files`` and ``_styles``, the parts of its script and style;
    ``_options``, the traits that its constructor accepts. A subclass defines :meth:`_carry_out` and :meth:`_bundle`.

    Work that may take over a second runs in ``_works`` (:mod:`syno_widgets.working`). Meanwhile the kernel answers
    other cells, and the page shows the work with a button to cancel it. The latest request replaces earlier work. This
    class carries out the message ``cancel_work`` for all views.
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
    """Whether there is a kernel; False on a standalone page."""

    error = t.Unicode(read_only=True).tag(sync=True)
    """One line: why the last request was refused, or why the data could not be read; else empty."""

    answered = t.Int(0, read_only=True).tag(sync=True)
    """The number of the last answered request; the browser notices by it when the kernel is gone."""

    running = t.Dict(read_only=True).tag(sync=True)
    """The running work: ``what``, and ``since`` in seconds of the epoch; else empty."""

    static_id = t.Unicode(read_only=True).tag(sync=True)
    """The marker of the output with the static picture, which the live widget hides."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Create the lock before ``__init__``, because a view is closed also if ``__init__`` fails."""
        view: Self = super().__new__(cls, *arguments, **options)
        view._lock = threading.RLock()  # threads and browser messages write the same traits
        view._works = Works(view._lock, view._show_running, view._cancelled)
        view._handled = 0
        return view

    def __init__(self) -> None:
        super().__init__()
        self.set_trait("static_id", uuid.uuid4().hex)
        self._static = StaticOutput(self.static_id)

    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> None:
        """Raise TypeError for an unknown option, as Python does."""
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
        """Set the traits from the page; an invalid value is refused in :attr:`error`."""
        try:
            super().set_state(sync_data)
        except t.TraitError as wrong:
            self.set_trait("error", printable(str(wrong), _MOST_WORDS))
            self.send_state([name for name in sync_data if self.has_trait(name)])

    def handle(self, content: Any) -> None:
        """Carry out one message; every error becomes one line in :attr:`error`.

        Work of the message gets a moment to finish. Longer work continues in its thread, and is answered at its end.
        """
        number = content.get("request", 0) if isinstance(content, dict) else 0
        self._handled += 1
        message_number, error = self._handled, ""
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
        except Exception as unforeseen:  # noqa: BLE001 the widget must stay usable; the log has the traceback
            error = self._unforeseen(unforeseen, content)
        if work is None:
            self._answer(number, error)
            return
        started = work
        try:
            if not started.wait(GRACE_S):
                started.tell()
                if started.is_rest:
                    self._answer(number, "")
        except KeyboardInterrupt:
            self._answer(number, _cancelled_line(self._works.cancel(started)))
        started.then(lambda: self._answer_late(message_number, number, started))

    def _answer(self, number: object, error: str) -> None:
        with self._lock, self.hold_sync():
            self.set_trait("error", error)
            self.set_trait("answered", number if isinstance(number, int) else 0)

    def _answer_late(self, message_number: int, number: object, work: Work) -> None:
        """Report the end of work, unless it was cancelled or replaced."""
        if work.should_stop():
            return
        error = ""
        if isinstance(work.error, SynoError):
            error = str(work.error)
        elif work.error is not None:
            error = self._unforeseen(work.error, work.what)
        if message_number == self._handled:
            self._answer(number, error)
        elif error:
            self.set_trait("error", error)

    def cancel(self) -> None:
        """Cancel the running work; the view still shows the old data."""
        self._works.cancel()

    def close(self) -> None:
        """Remove the view from the page and cancel its work."""
        self._works.close()
        super().close()

    def _show_running(self, work: dict[str, Any]) -> None:
        self.set_trait("running", work)

    def _cancelled(self, work: Work) -> None:
        """Show that work was cancelled; called under the lock."""

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        self.handle(content)

    def _carry_out(self, request: Any) -> Work | None:
        """Carry out a message of the type ``_request``, or begin its work and return the work.

        Raises:
            SynoError: the request cannot be carried out.
        """
        raise NotImplementedError

    def _unforeseen(self, error: Exception, subject: object) -> str:
        """Log an unexpected exception with its traceback; return one line for the page."""
        _LOG.error("%s: %s", self._noun, quoted(subject, _MOST_WORDS), exc_info=error)
        return printable(f"{type(error).__name__}: {error}".splitlines()[0], _MOST_WORDS)

    # -- outputs -----------------------------------------------------------------------------------------------------

    def to_html(self, path: str | Path | None = None) -> str:
        """Write a standalone page with all that is shown now. The page fetches nothing and needs no kernel.

        Args:
            path: the path of the page; None: it is only returned.

        Raises:
            SynoError: the data cannot be read, or the file cannot be written.
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
        """Return the title of the page of :meth:`to_html`."""
        raise NotImplementedError

    def _page_state(self) -> dict[str, Any]:
        """Return the data of the page of :meth:`to_html`: the traits of the views, not those of every widget."""
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, View)]
        names = {name for kind in kinds for name in kind.class_own_traits(sync=True) if not name.startswith("_")}
        return {name: getattr(self, name) for name in sorted(names)}

    def _bundle(self) -> Bundle:
        """Return the output that a page without a kernel shows."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the widget, with its picture and its words for pages without widgets."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        static = self._bundle()
        return {**data, **{kind: static[kind] for kind in ("image/svg+xml", "text/plain") if kind in static}}, metadata

    def _ipython_display_(self) -> None:
        """Display two outputs: the widget, and the picture that the live widget hides."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display({**data, "text/plain": self._words}, metadata=metadata, raw=True)
        self._static.show_bundle(self._bundle())


def _plain(content: Any) -> Any:
    """Return a message if it has only valid text and numbers up to 2**53, JavaScript's largest exact integer.

    Raises:
        SynoError: the message has other values.
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
