"""The magics of ``%load_ext syno_lab``.

=======================  ================================================================================
``%syno``                lists the known operators
``%syno conv2d``         the stepper on a known operator, at its last step
``%syno_card MERGE``     the card of a primitive, with its picture
``%%syno search``        submits a search; the cell holds the options of ``syno-lab search``, line by line
``%%syno train``         a training; in one line ``%syno train conv2d --epochs 5``, or ``job = %syno …``
``%%syno tune``          a tuning
``%syno jobs``           the table of jobs
``lab = %syno lab``      the lab, where its name is taken
``%syno cancel 3``       what ``syno-lab jobs cancel 3`` does; so with pause, resume, retry, show, log, stop
=======================  ================================================================================

A job runs outside the kernel: its cell ends at once, and the job goes on when the kernel does not.
"""

from __future__ import annotations

import io
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import msgspec
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.display import SVG, display

from syno_lab.commands.detach import working_in
from syno_lab.errors import SynoError
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.operators import KNOWN
from syno_widgets.attached import AttachedLab
from syno_widgets.stepper import Stepper

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs import JobHandle
    from syno_widgets.jobs_view import JobsView

SUBMITTED = ("search", "train", "tune")
STEERING = ("list", "show", "log", "cancel", "pause", "resume", "retry", "stop")
_LAB = "lab"


@magics_class
class SynoMagics(Magics):
    """``%syno``, ``%%syno`` and ``%syno_card``; jobs go to ``lab``, which every notebook has by this name."""

    def __init__(self, shell: Any, lab: AttachedLab) -> None:
        super().__init__(shell)
        self._expand = shell.var_expand
        self.lab = lab

    @line_cell_magic
    def syno(
        self, line: str, cell: str | None = None
    ) -> Stepper | JobHandle | list[JobHandle] | JobsView | AttachedLab | None:
        """``%syno [operator]``, ``%%syno search|train|tune``, ``%syno jobs``, ``%syno cancel 3`` and the like."""
        words = _words(line)
        if cell is not None:
            if not words or words[0] not in SUBMITTED:
                found = f", found {words[0]!r}" if words else ""
                raise UsageError(f"%%syno: expected {', '.join(SUBMITTED)} behind it{found}; `%syno jobs` lists jobs")
            words += _words(self._expand(cell))
        if not words:
            print("known operators: " + ", ".join(KNOWN))  # noqa: T201 a magic talks to the reader of a cell
            return None
        first, *rest = words
        if first in SUBMITTED:
            return self._submit(first, rest)
        if first == "jobs" and not rest:
            return self._table()
        if first == "lab" and not rest:
            return self.lab
        if first in STEERING:
            print(self._command("jobs", first, *rest), end="")  # noqa: T201
            if first == "stop":  # which leaves the open lab without its thread
                self.lab.let_go()
            return None
        if first not in KNOWN or rest:
            raise UsageError(
                f"unknown operator {line.strip()!r}; known are {', '.join(KNOWN)}; "
                f"about jobs there are {', '.join((*SUBMITTED, 'jobs', 'lab', *STEERING))}"
            )
        return Stepper(KNOWN[first]())

    @line_magic
    def syno_card(self, line: str) -> None:
        """``%syno_card PRIMITIVE``: its card and its picture."""
        from syno_lab.codegen.drawing import card_svg

        name = line.strip().upper()
        try:
            picture = card_svg(name)
        except SynoError as error:
            raise UsageError(str(error)) from None
        print(PRIMITIVES[name].card)  # noqa: T201
        display(SVG(data=picture))

    def _submit(self, kind: str, words: list[str]) -> JobHandle | list[JobHandle] | None:
        for option in (word.partition("=")[0] for word in words):
            if option in ("--detach", "--json"):
                raise UsageError(f"{option}: a cell submits a job and gives its handle; leave the option out")
        text = self._command(kind, "--detach", "--json", "-", *words)
        if {"-h", "--help"} & set(words):
            print(text, end="")  # noqa: T201
            return None
        handles = [self.lab.opened().job(job["id"]) for job in msgspec.json.decode(text)["jobs"]]
        return handles[0] if len(handles) == 1 else handles

    def _table(self) -> JobsView:
        try:
            return self.lab.table()
        except SynoError as error:
            raise UsageError(str(error)) from None

    def _command(self, *words: str) -> str:
        """What ``syno-lab`` prints for these words; it runs here, on the notebook's lab, as it only submits or asks."""
        from syno_lab.cli import main

        for option in (word.partition("=")[0] for word in words):
            if option == "--folder":
                raise UsageError(f"--folder: this notebook has its own lab, {self.lab.folder}; leave the option out")
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            try:
                with working_in(self.lab.opened()):
                    status = main(words)
            except SynoError as error:  # of opening the lab
                raise UsageError(str(error)) from None
        *warnings, last = err.getvalue().strip().splitlines() or [""]
        if status > 1:
            raise UsageError(last.removeprefix("syno-lab: "))
        for line in (*warnings, last):
            if line:
                print(line, file=sys.stderr)  # noqa: T201
        return out.getvalue()


def _words(text: str) -> list[str]:
    """The words of a line or a cell as a shell reads them: quotes, comments, a backslash before the end of a line."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"%%syno: {error} in {text.strip()!r}") from None


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics and attach the lab of this folder under the name ``lab``, unless the name is in use."""
    lab = AttachedLab()
    lab.open_soon()
    ipython.register_magics(SynoMagics(ipython, lab))
    if _LAB not in ipython.user_ns:
        ipython.push({_LAB: lab}, interactive=False)


def unload_ipython_extension(ipython: Any) -> None:
    """Detach the lab; the jobs go on."""
    magics = ipython.magics_manager.registry.get(SynoMagics.__name__)
    if magics is not None:
        magics.lab.close()
        if ipython.user_ns.get(_LAB) is magics.lab:
            del ipython.user_ns[_LAB]
