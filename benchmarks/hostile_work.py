"""One hostile input in a process of its own kind: made, opened, judged.

Fine is what succeeds, and what is refused in one short line of printable characters. Everything else is a finding:
another exception, several lines, signs that no terminal should be given, a payload that ran, a program that was
started, a connection, a file that changed, more memory than a GiB.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import resource
import shutil
import signal
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from hostile_functions import FUNCTIONS
from hostile_surfaces import FILES, Place
from hostile_systems import SYSTEMS
from hostile_words import WORDS

SURFACES = FILES | WORDS | SYSTEMS | FUNCTIONS
#: Characters of a refusal, beside the paths that it names.
LONGEST = 500
#: Bytes that an input may take beside what the imports take.
MOST_MEMORY = 1 << 30
CPU_LIMIT_S = 5.0
CLOCK_LIMIT_S = 60.0
_GRACE_MEMORY = 2 << 30
_PROGRESS = re.compile(r"[\w ]+ +\d+ %.*")
#: Programs that readers may start: the drawer of graphs, and what platform and matplotlib ask.
_PROGRAMS = {"dot", "graphviz-pure", "uname", "git", "fc-list"}
_STARTS = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pty.spawn", "socket.connect", "socket.bind")


class UnclearError(Exception):
    """A refusal, or an answer, that no user should be shown."""


class RefusedError(Exception):
    """A command's refusal in one line."""


class Forbidden(BaseException):
    """Raised in the place of a program that would be started, or a connection; nothing catches it."""


class Late(BaseException):
    """Raised in what goes on for too long; nothing catches it."""


_ended = False


def _end(number: int, frame: object) -> None:
    global _ended
    _ended = True
    raise Late(f"ended after {'5 CPU-seconds' if number == signal.SIGPROF else 'its time on the clock'}")


_watched: list[str] | None = None
_shows_tracebacks = False


def show_tracebacks() -> None:
    """Print the traceback of what is not fine, from now on."""
    global _shows_tracebacks
    _shows_tracebacks = True


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None or event not in _STARTS:
        return
    words = arguments[1] if event == "subprocess.Popen" else arguments[:2]
    if event.startswith("socket") and str(arguments[1])[:1] == "/":
        return  # of the machine's own name service
    program = Path(str(words[0] if isinstance(words, list | tuple) else words).split(" ")[0]).name
    if program not in _PROGRAMS:
        said = f"{event} {str(words)[:200]}"
        _watched.append(said)
        raise Forbidden(said)


def prepare(kit: str) -> None:
    """Import what readers import, once for a process, and read one well-formed file of each kind."""
    from syno_lab import operators
    from syno_lab.codegen.export import load_weights, read_operator
    from syno_lab.data.datasets import load_dataset  # noqa: F401
    from syno_lab.reports import LabReader

    folder = Path(kit)
    for name in ("onnx", "pt2", "py", "safetensors"):
        read_operator(folder / f"conv.{name}")
    load_weights(operators.conv2d(), folder / "conv.safetensors")
    LabReader(folder / "lab").close()
    for surface in SURFACES:
        for index in range(2):
            run(surface, 0, index, kit)
    sys.addaudithook(_watch)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = used + MOST_MEMORY + _GRACE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(
    surface: str, seed: int, index: int, kit: str, *, keep: bool = False, patience_s: float = CLOCK_LIMIT_S
) -> dict[str, Any]:
    """Make the input with this number, open it, and say what came of it.

    What a signal can end is ended here after ``patience_s``, or 5 CPU-seconds; the rest is for whoever watches.
    """
    global _watched, _ended
    with _place(kit, keep) as place:
        rng = random.Random(f"{seed}/{surface}/{index}")
        found: dict[str, Any] = {"surface": surface, "index": index, "detail": ""}
        try:
            opening = SURFACES[surface][0](rng, place)
        except Exception as error:
            if keep:
                raise
            return found | {"verdict": "unmade", "detail": repr(error)[:300], "cpu_s": 0.0, "mib": 0.0}
        before = digests_of(place.given)
        base, cpu = _memory("VmRSS"), _cpu()
        with suppress(OSError):  # forget the highest so far
            Path("/proc/self/clear_refs").write_text("5")
        out, err = _captured("strict"), _captured("backslashreplace")
        _watched, _ended = [], False
        verdict, detail = "accepted", ""
        try:
            with redirect_stdout(out), redirect_stderr(err), _timed(patience_s):
                opening()
        except BaseException as error:  # noqa: BLE001 - whatever it raises is what is asked for
            verdict, detail = _judged(error, place)
        started, _watched = _watched, None
        said = _text(out) + _text(err)
        if "Traceback (most recent call last)" in said and verdict != "traceback":
            verdict, detail = "traceback", "in a thread: " + said.strip().splitlines()[-1][:300]
        found |= {"cpu_s": round(_cpu() - cpu, 3), "mib": round((_memory("VmHWM") - base) / 1024, 1)}
        if _ended and verdict != "hang":
            verdict, detail = "hang", f"too long, and then {verdict}: {detail}"
        if found["mib"] * (1 << 20) > MOST_MEMORY:
            verdict, detail = "memory", f"{found['mib']} MiB; {detail}"
        after = digests_of(place.given)
        if after != before:
            other = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            verdict, detail = "changed", f"{', '.join(other)[:200]} ({verdict}: {detail})"
        if started:
            verdict, detail = "code", "; ".join(started)
        if place.marker.exists():
            verdict, detail = "code", "a payload ran"
        return found | {"verdict": verdict, "detail": detail}


@contextmanager
def _timed(patience_s: float) -> Iterator[None]:
    before = [(number, signal.signal(number, _end)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
    signal.setitimer(signal.ITIMER_REAL, patience_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def _place(kit: str, keep: bool) -> Iterator[Place]:
    before, home = Path.cwd(), os.environ.get("HOME", "")
    root = Path(tempfile.mkdtemp(prefix="h-"))
    try:
        for name in ("given", "home", "work"):
            (root / name).mkdir()
        os.chdir(root / "work")
        os.environ["HOME"] = str(root / "home")
        yield Place(Path(kit), root / "given", root / "marker", command)
    finally:
        os.chdir(before)
        os.environ["HOME"] = home
        if keep:
            sys.stderr.write(f"the input is in {root}\n")
        else:
            shutil.rmtree(root, ignore_errors=True)


def command(*words: object) -> object:
    """Run ``syno-lab`` in this process; raises RefusedError for a fine refusal and UnclearError for any other."""
    from syno_lab.cli import main

    out, err = _captured("strict"), _captured("backslashreplace")
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(word) for word in words])
    answer, complaint = _text(out), _text(err)
    if "Traceback (most recent call last)" in complaint or status == 70:
        raise UnclearError(f"status {status}: {complaint.strip()[-300:]}")
    if status in (0, 1):
        odd = {sign for sign in answer + complaint if not sign.isprintable() and sign not in "\n\t"}
        if odd:
            raise UnclearError(f"the answer has {sorted(odd)!r} in it: {(answer + complaint)[:300]!r}")
        return status
    *progress, line = complaint.split("\n")[:-1] or [""]
    if answer.strip() and "Usage:" not in answer:
        raise UnclearError(f"status {status} and an answer: {answer[:200]!r}")
    if status != 2 or not all(map(_PROGRESS.fullmatch, progress)) or not line.startswith("syno-lab: "):
        raise UnclearError(f"status {status}: {complaint[:300]!r}")
    raise RefusedError(line)


def _judged(error: BaseException, place: Place) -> tuple[str, str]:
    from IPython.core.error import UsageError

    from syno_lab.errors import SynoError

    if isinstance(error, Late):
        frames = traceback.extract_tb(error.__traceback__)
        return "hang", f"{error} in {_ours(frames)}"
    if isinstance(error, UnclearError):
        return ("traceback" if "status 70" in str(error)[:10] else "unclear"), str(error)[:600]
    if not isinstance(error, SynoError | UsageError | RefusedError):
        if _shows_tracebacks:
            traceback.print_exception(error, file=sys.__stderr__)
        frames = traceback.extract_tb(error.__traceback__)
        return "traceback", f"{type(error).__name__}: {_cut(str(error))} [{_ours(frames)}]"
    text = str(error)
    if not isinstance(
        error, RefusedError
    ):  # a function's caller knows the path; a terminal gets all of a command's line
        for path in place.given.rglob("*"):
            text = text.replace(str(path), "PATH").replace(path.name, "NAME")
    paths = re.findall(r"/[^\s:;,]*", text)
    length = len(text) - sum(map(len, paths))
    if not text.isprintable():
        return "unclear", f"not printable: {text[:400]!r}"
    if length > LONGEST:
        return "unclear", f"{length} characters: {text[:300]!r}"
    if not text.strip():
        return "unclear", f"nothing is said by {type(error).__name__}"
    return "refused", text[:200]


def _ours(frames: traceback.StackSummary) -> str:
    """The last two places of the lab's own code."""
    found = [one for one in frames if "/syno_lab/" in one.filename or "/syno_widgets/" in one.filename]
    return "; ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in found[-2:])


def _cut(text: str) -> str:
    return " ".join(text.split())[:200]


def digests_of(folder: Path) -> dict[str, str]:
    """What a folder holds, by name: kinds, rights and the content of plain files, of sparse ones the size."""
    found = {}
    for path in sorted(folder.rglob("*"), key=os.fsencode):
        about = path.lstat()
        if path.name.endswith("-shm") or (path.name.endswith("-wal") and not about.st_size):
            continue  # SQLite makes them for whoever reads a store that others may write to; they hold nothing
        digest = hashlib.sha256(f"{about.st_mode:o} {about.st_nlink if path.is_file() else 0}".encode())
        if stat.S_ISLNK(about.st_mode):
            digest.update(os.fsencode(path.readlink()))
        elif stat.S_ISREG(about.st_mode):
            digest.update(str(about.st_size).encode())
            if about.st_size < 1 << 26:
                digest.update(path.read_bytes())
        found[ascii(str(path.relative_to(folder)))] = digest.hexdigest()
    return found


def _captured(errors: str) -> io.TextIOWrapper:
    """A stream as Python opens a terminal's: what standard output cannot write raises, ``strict``."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8", "replace")


def _memory(name: str) -> int:
    """KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
