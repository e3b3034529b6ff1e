"""The lab of this kernel: the folder of ``SYNO_LAB_FOLDER``, else ``.syno-lab`` in the working directory.

The lab is opened on first use, so that a notebook that only draws creates no folder.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from typing import TYPE_CHECKING, Any, cast

from syno_lab.commands.detach import lab_folder
from syno_lab.errors import SynoError
from syno_lab.store.database import FILE_NAME

if TYPE_CHECKING:
    from syno_lab.jobs import Lab
    from syno_widgets.jobs_view import JobsView


class AttachedLab:
    """A proxy of the :class:`~syno_lab.jobs.Lab` that forwards all attributes to it.

    The constructor fixes the folder: a notebook that changes its working directory keeps its jobs.
    """

    def __init__(self) -> None:
        self._folder = lab_folder().absolute()
        self._lab: Lab | None = None
        self._table: JobsView | None = None
        self._lock = threading.RLock()

    @property
    def folder(self) -> Any:
        """The lab's folder, which may not exist yet."""
        return self._folder

    def opened(self) -> Lab:
        """Return the lab; the first call opens it. Raises SynoError if the folder cannot be opened."""
        with self._lock:
            if self._lab is None:
                from syno_lab.jobs import Lab

                self._lab = Lab.open(self._folder)
                atexit.register(self.close)
            return self._lab

    def open_soon(self) -> None:
        """Open an existing lab in the background, so that its waiting jobs run."""
        if (self._folder / FILE_NAME).is_file():
            threading.Thread(target=self._try_to_open, name="syno-lab opens", daemon=True).start()

    def _try_to_open(self) -> None:
        with contextlib.suppress(SynoError):  # the first use raises it again
            self.opened()

    def table(self) -> JobsView:
        """Return the table of the lab's jobs, always the same table. Raises SynoError if the lab cannot be opened."""
        from syno_widgets.jobs_view import JobsView

        self.opened()
        with self._lock:
            if self._table is None:
                self._table = JobsView(cast("Lab", self))  # the proxy, because the lab may be closed and reopened
            return self._table

    def let_go(self) -> None:
        """Close the lab; the next use opens it again."""
        with self._lock:
            lab, self._lab = self._lab, None
        if lab is not None:
            lab.close()

    def close(self) -> None:
        """Close the lab and its table; the jobs continue."""
        atexit.unregister(self.close)
        with self._lock:
            table, self._table = self._table, None
        if table is not None:  # without the lock, because the table's thread may wait for it
            table.close()
        with contextlib.suppress(SynoError):
            self.let_go()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # names that shells and notebooks probe, such as _repr_html_
            raise AttributeError(name)
        return getattr(self.opened(), name)

    def __dir__(self) -> list[str]:
        from syno_lab.jobs import Lab

        return sorted({*dir(Lab), *object.__dir__(self)})

    def __repr__(self) -> str:
        return f"<the lab in {self._folder}>"
