"""A view that updates itself: it reads its data again and again, in its own thread."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

from syno_lab.errors import SynoError
from syno_widgets.view import View

_BUSY_S, _QUIET_S = 1.0, 3.0  # between two looks, with and without something under way
_SHARE = 20  # looking takes at most one part in so many of the time
_STATIC_S = 5.0  # between two pictures for pages without a kernel


class LookingView(View):
    """A view whose :meth:`refresh` is called now and then, so that it moves while a cell runs.

    A class of its own writes :meth:`refresh`, :meth:`_is_busy` and, where its static picture moves as well,
    :meth:`_pictured`, and calls :meth:`_start_looking` at the end of its ``__init__``.
    """

    _closed: threading.Event
    _unread: str
    _static_at: float
    _static_of: object

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Make all that :meth:`close` needs before ``__init__``: a view that ``__init__`` refuses is closed as well."""
        made: Self = super().__new__(cls, *arguments, **options)
        made._closed = threading.Event()
        made._unread = ""
        made._static_at, made._static_of = -float("inf"), None
        return made

    def refresh(self) -> None:
        """Read now. Raises SynoError when that cannot be done."""
        raise NotImplementedError

    def _is_busy(self) -> bool:
        """Whether work is running, so that the next reading should be soon."""
        raise NotImplementedError

    def _pictured(self) -> object:
        """The object that the static picture shows; a new picture is made for another object."""
        return None

    def close(self) -> None:
        """Stop reading, and take the view off the page. The jobs and searches continue."""
        self._closed.set()
        with self._lock:  # a look under way comes to its end
            super().close()

    def handle(self, content: Any) -> None:
        """Carry out one message, as :meth:`View.handle` does; the error of a reading stays."""
        super().handle(content)
        with self._lock:
            if not self.error and self._unread:
                self.set_trait("error", self._unread)

    def _start_looking(self, name: str) -> None:
        threading.Thread(target=self._look, name=f"syno-lab {name}", daemon=True).start()

    def _look(self) -> None:
        wait = _BUSY_S
        while not self._closed.wait(wait):
            begun = time.monotonic()
            self._try_to_refresh()
            wait = max(_BUSY_S if self._is_busy() else _QUIET_S, _SHARE * (time.monotonic() - begun))
            self._renew_static()

    def _renew_static(self) -> None:
        """Make a new static picture if its object has changed, but not too often."""
        now = time.monotonic()
        if self._static_of is self._pictured() or now - self._static_at < _STATIC_S:
            return
        with self._lock:
            self._static_of = self._pictured()
            bundle = self._bundle()
        self._static.update_bundle(bundle)
        self._static_at = time.monotonic()

    def _try_to_refresh(self) -> None:
        try:
            with self._lock:
                if self._closed.is_set():
                    return
                self.refresh()
            self._say_unread("")
        except SynoError as error:
            self._say_unread(str(error))
        except Exception as unforeseen:  # noqa: BLE001 the view must live on; the log has the whole story
            self._say_unread(self._unforeseen(unforeseen, "looking again"))

    def _say_unread(self, text: str) -> None:
        """Set or clear the error of a reading; other errors stay until the next request."""
        with self._lock:
            if text or self._unread:
                self.set_trait("error", text)
            self._unread = text
