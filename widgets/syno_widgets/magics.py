"""The magics of ``%load_ext syno_lab``.

=======================  ================================================================================
``%syno``                lists the known operators
``%syno conv2d``         the stepper on a known operator, at its last step
``%syno_card MERGE``     the card of a primitive, with its picture; ``%syno_card canvas fc`` of a system
``%%syno search``        submits a search; the cell holds the options of ``syno-lab search``, line by line
``%%syno train``         submits a training; in one line ``%syno train conv2d --epochs 5``, or ``job = %syno …``
``%%syno tune``          submits a tuning
``%syno jobs``           the table of jobs
``lab = %syno lab``      the lab, if the name ``lab`` is in use
``%syno cancel 3``       as ``syno-lab jobs cancel 3``; also allow, pause, resume, retry, show, log, stop
=======================  ================================================================================

``{name}`` inserts the value of an expression, ``$name`` of a variable: always as one word or a part of one.
``%syno --traceback …`` shows where an error was raised.

A job runs outside the kernel: its cell ends at once, and the job continues when the kernel ends.
"""

from __future__ import annotations

import functools
import io
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import msgspec
from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    line_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)
from IPython.display import SVG, display
from IPython.utils.text import DollarFormatter

from syno_lab.commands.detach import working_in
from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.systems import DEFAULT, find_card, find_system
from syno_widgets.attached import AttachedLab
from syno_widgets.stepper import Stepper

if TYPE_CHECKING:
    from syno_lab.jobs import JobHandle
    from syno_widgets.jobs_view import JobsView

SUBMITTED = ("search", "train", "tune")
STEERING = ("list", "show", "log", "allow", "cancel", "pause", "resume", "retry", "stop")
_LAB = "lab"
_TRACEBACK = "--traceback"
#: The most characters of a line or a cell, without values: inserting and splitting take quadratic time.
_LONGEST = 1 << 15


def _known() -> Mapping[str, Callable[[], Any]]:
    """Return the known pGraphs by name."""
    return find_system(DEFAULT).known


def _one_line(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an unexpected exception into one line, as the command does; a SynoError is raised unchanged."""

    @functools.wraps(magic)
    def told(self: Any, line: str, *rest: Any, **scope: Any) -> Any:
        try:
            return magic(self, line, *rest, **scope)
        except (UsageError, SynoError):
            raise
        except Exception as error:
            from syno_lab.cli import fault_line

            if line.split(maxsplit=1)[:1] == [_TRACEBACK]:
                raise
            raise UsageError(fault_line(error, f"`%{magic.__name__} {_TRACEBACK} …`")) from None

    return told


@magics_class
class SynoMagics(Magics):
    """``%syno``, ``%%syno`` and ``%syno_card``; jobs go to ``lab``, which every notebook has by this name."""

    def __init__(self, shell: Any, lab: AttachedLab) -> None:
        super().__init__(shell)
        self._notebook = shell
        self.lab = lab
        self._options: tuple[str, ...] = ()

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    @_one_line
    def syno(
        self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None
    ) -> Stepper | JobHandle | list[JobHandle] | JobsView | AttachedLab | None:
        """Run ``%syno [operator]``, ``%%syno search|train|tune``, ``%syno jobs``, ``%syno cancel 3`` and so on."""
        names = {**self._notebook.user_ns, **(local_ns or {})}
        words = _words(line, names)
        self._options = (_TRACEBACK,) if words[:1] == [_TRACEBACK] else ()
        words = words[len(self._options) :]
        if cell is not None:
            if not words or words[0] not in SUBMITTED:
                suffix = f", found {quoted(words[0])}" if words else ""
                raise UsageError(f"%%syno: expected {', '.join(SUBMITTED)} behind it{suffix}; `%syno jobs` lists jobs")
            words += _words(cell, names)
        if not words:
            print("known operators: " + ", ".join(_known()))  # noqa: T201 the output of a cell
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
            if first == "stop":  # which stops the open lab's thread
                self.lab.let_go()
            return None
        if first not in _known() or rest:
            raise UsageError(
                f"unknown operator {quoted(line.strip())}; known are {', '.join(_known())}; "
                f"about jobs there are {', '.join((*SUBMITTED, 'jobs', 'lab', *STEERING))}"
            )
        return Stepper(_known()[first]())

    @no_var_expand
    @needs_local_scope
    @line_magic
    @_one_line
    def syno_card(self, line: str, local_ns: Mapping[str, Any] | None = None) -> None:
        """Print the card of a primitive and show its picture; ``%syno_card canvas unfold`` names the system too."""
        words = _words(line, {**self._notebook.user_ns, **(local_ns or {})})
        try:
            card = find_card(words[1:] if words[:1] == [_TRACEBACK] else words)
            picture = card.draw()
        except SynoError as error:
            raise UsageError(str(error)) from None
        print(card.text)  # noqa: T201
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
        """Run ``syno-lab`` with these words on the notebook's lab, and return the output; it only submits or lists."""
        from syno_lab.cli import main

        for option in (word.partition("=")[0] for word in words):
            if option == "--folder":
                raise UsageError(f"--folder: this notebook has its own lab, {self.lab.folder}; leave the option out")
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            try:
                with working_in(self.lab.opened()):
                    status = main((*self._options, *words))
            except SynoError as error:  # the lab cannot be opened
                raise UsageError(str(error)) from None
        *warnings, last = err.getvalue().strip().splitlines() or [""]
        if status > 1:
            print(*(warnings if self._options else ()), sep="\n", end="", file=sys.stderr)  # noqa: T201 the traceback
            raise UsageError(last.removeprefix("syno-lab: "))
        for line in (*warnings, last):
            if line:
                print(line, file=sys.stderr)  # noqa: T201
        return out.getvalue()


class _Places(DollarFormatter):
    """Replace each value by a marker that cannot be split into words, and store the values."""

    def __init__(self) -> None:
        super().__init__()
        self._key = secrets.token_hex(8)  # which no cell contains
        self._values: list[str] = []

    def format_field(self, value: Any, format_spec: str) -> str:
        """Store the value of one ``{…}`` or ``$…``; return its marker."""
        self._values.append(super().format_field(value, format_spec))
        return f"{self._key}:{len(self._values) - 1};"

    def put_in(self, word: str) -> str:
        """Return the word with its markers replaced by the values."""
        return re.sub(f"{self._key}:([0-9]+);", lambda mark: self._values[int(mark[1])], word)


def _words(text: str, names: Mapping[str, Any]) -> list[str]:
    """Split a line or a cell into words as a shell does: with quotes, comments, and a backslash before a line end.

    Values of ``{…}`` and ``$…`` are inserted after the split, so that they cannot become several words. If an
    expression raises an exception, all expressions stay as text, as in IPython's own magics.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"%%syno: expected at most {_LONGEST} characters, found {len(text)}")
    places = _Places()
    try:
        marked = places.vformat(text, args=[], kwargs=names)
    except Exception:  # noqa: BLE001 - an expression of the notebook may raise anything
        places, marked = _Places(), text
    try:
        return [places.put_in(word) for word in shlex.split(marked.replace("\\\n", " "), comments=True)]
    except ValueError as error:
        raise UsageError(f"%%syno: {error} in {quoted(text.strip())}") from None


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics and attach the lab of this folder under the name ``lab``, unless the name is in use.

    If the magics are already registered, do nothing: the kernel "Syno Lab" starts with them.
    """
    if SynoMagics.__name__ in ipython.magics_manager.registry:
        return
    lab = AttachedLab()
    lab.open_soon()
    ipython.register_magics(SynoMagics(ipython, lab))
    if _LAB not in ipython.user_ns:
        ipython.push({_LAB: lab}, interactive=False)


def unload_ipython_extension(ipython: Any) -> None:
    """Detach the lab; its jobs continue."""
    magics = ipython.magics_manager.registry.pop(SynoMagics.__name__, None)
    if magics is not None:
        magics.lab.close()
        if ipython.user_ns.get(_LAB) is magics.lab:
            del ipython.user_ns[_LAB]
