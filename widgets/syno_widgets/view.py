"""What the widgets have in common: they answer the browser's messages, and leave their picture beside them."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import Any, ClassVar, Self

import anywidget
import msgspec
import traitlets as t

from syno_lab.errors import SynoError
from syno_widgets.static import Bundle, StaticOutput

_LOG = logging.getLogger(__name__)


class View(anywidget.AnyWidget):
    """A widget that carries out messages, each with a number in ``request``, and has a static output.

    A class of its own says in ``_noun`` what it is in messages, in ``_request`` what messages are, in ``_words`` what
    stands in place of it where no widget can be shown, and writes :meth:`_carry_out` and :meth:`_bundle`.
    """

    _noun: ClassVar[str]
    _request: ClassVar[type[msgspec.Struct]]
    _words: ClassVar[str]
    _lock: threading.RLock

    error = t.Unicode(read_only=True).tag(sync=True)
    """Why the last request was not carried out, one line; empty when it was."""

    answered = t.Int(0, read_only=True).tag(sync=True)
    """The number of the last request carried out or refused, so that the browser notices a kernel that is gone."""

    static_id = t.Unicode(read_only=True).tag(sync=True)
    """Marks the output with the static picture, which the live widget hides."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """The lock comes before ``__init__``: what that refuses is closed as well."""
        made: Self = super().__new__(cls, *arguments, **options)
        made._lock = threading.RLock()  # threads and the browser's messages write the same traits
        return made

    def __init__(self) -> None:
        super().__init__()
        self.set_trait("static_id", uuid.uuid4().hex)
        self._static = StaticOutput(self.static_id)

    # -- from the browser --------------------------------------------------------------------------------------------

    def handle(self, content: Any) -> None:
        """Carry out one message; whatever goes wrong becomes one line in :attr:`error`."""
        number = content.get("request", 0) if isinstance(content, dict) else 0
        error = ""
        try:
            self._carry_out(msgspec.convert(content, self._request))
        except SynoError as refused:
            error = str(refused)
        except msgspec.ValidationError as wrong:
            error = f"the browser sent a message that is none of the {self._noun}'s: {wrong}"
        except Exception as unforeseen:  # noqa: BLE001 the widget must live on; the log has the whole story
            error = self._unforeseen(unforeseen, content)
        with self._lock, self.hold_sync():
            self.set_trait("error", error)
            self.set_trait("answered", number if isinstance(number, int) else 0)

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        self.handle(content)

    def _carry_out(self, request: Any) -> None:
        """Do what a message of the kind ``_request`` asks for. Raises SynoError for what cannot be done."""
        raise NotImplementedError

    def _unforeseen(self, error: Exception, what: object) -> str:
        """An error that is nobody's fault but ours: whole in the log, in one line for the page."""
        _LOG.exception("%s: %r", self._noun, what)
        return f"{type(error).__name__}: {error}".splitlines()[0]

    # -- outputs -----------------------------------------------------------------------------------------------------

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
