"""A view that updates itself: a thread refreshes its data again and again."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

from syno_lab.errors import SynoError
from syno_widgets.view import View

_BUSY_S, _QUIET_S = 1.0, 3.0  # Seconds between two refreshes, with and without running work.
_SHARE = 20  # Refreshes take at most 1/_SHARE of the time.
_STATIC_S = 5.0  # Seconds between two pictures for pages without a kernel.


class LookingView(View):
    """A view whose :meth:`refresh` is called regularly, so that it updates while a cell runs.

    A subclass defines :meth:`refresh`, :meth:`_is_busy` and, if its static picture changes too, :meth:`_pictured`. A
    subclass calls :meth:`_start_looking` at the end of its ``__init__``.
    """

    _closed: threading.Event
    _unread: str
    _static_at: float
    _static_of: object

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Create what :meth:`close` needs before ``__init__``, because a view is closed also if ``__init__`` fails."""
        view: Self = super().__new__(cls, *arguments, **options)
        view._closed = threading.Event()
        view._unread = ""
        view._static_at, view._static_of = -float("inf"), None
        return view

    def refresh(self) -> None:
        """Read the data now. Raises SynoError if the data cannot be read."""
        raise NotImplementedError

    def _is_busy(self) -> bool:
        """Tell whether work is running, so that the next refresh should be soon."""
        raise NotImplementedError

    def _pictured(self) -> object:
        """Return the object that the static picture shows; another object needs a new picture."""
        return None

    def close(self) -> None:
        """Stop reading, and remove the view from the page. The jobs and searches continue."""
        self._closed.set()
        with self._lock:  # a running refresh ends first
            super().close()

    def handle(self, content: Any) -> None:
        """Carry out one message, as :meth:`View.handle` does; the error of a refresh stays."""
        super().handle(content)
        with self._lock:
            if not self.error and self._unread:
                self.set_trait("error", self._unread)

    def _start_looking(self, name: str) -> None:
        threading.Thread(target=self._look, name=f"syno-lab {name}", daemon=True).start()

    def _look(self) -> None:
        wait = _BUSY_S
        while not self._closed.wait(wait):
            start = time.monotonic()
            self._try_to_refresh()
            wait = max(_BUSY_S if self._is_busy() else _QUIET_S, _SHARE * (time.monotonic() - start))
            self._renew_static()

    def _renew_static(self) -> None:
        """Draw a new static picture if its object has changed, but not too often."""
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
        except Exception as unforeseen:  # noqa: BLE001 the view must stay usable; the log has the traceback
            self._say_unread(self._unforeseen(unforeseen, "looking again"))

    def _say_unread(self, text: str) -> None:
        """Set or clear the error of a refresh; other errors stay until the next request."""
        with self._lock:
            if text or self._unread:
                self.set_trait("error", text)
            self._unread = text
