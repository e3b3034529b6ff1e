"""Fixtures for all tests: golden texts, real images, and one printed seed for all that tests draw by chance."""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # behind all else: some names are common

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_BYTES = 50_000
# Fresh in every run, and kept in the environment so that child processes draw the same.
SEED = int(os.environ.setdefault("SYNO_LAB_SEED", str(random.SystemRandom().randrange(1 << 30))))

# The user's own settings and keys are no business of tests; child processes and pytest's workers share these.
if "SYNO_LAB_CONFIG" not in os.environ:
    os.environ["SYNO_LAB_CONFIG"] = tempfile.mkdtemp(prefix="syno-lab-config-")
    atexit.register(shutil.rmtree, os.environ["SYNO_LAB_CONFIG"], ignore_errors=True)

# nbformat brings a grammar of addresses for JSON schemas, which no schema here asks for: a second for each process.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# A shell starts what runs in the background with SIGINT ignored, and our children would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One test alone would wait longer for the imports than it saves.
if "PYTEST_XDIST_WORKER" in os.environ:
    warm.install()

# No test asserts a time, so none fails on a machine that is busy; a counterexample is printed so that it can be run
# again. Hypothesis would draw the same in every run where it finds itself in CI.
settings.register_profile(
    "syno",
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],  # the latter about one run in 10^5
)
settings.load_profile("syno")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden texts with what the code gives now"
    )
    parser.addoption("--draws", type=int, default=1, help="run each test that draws so often, with a seed each")


def pytest_report_header() -> str:
    return f"SYNO_LAB_SEED={SEED} (set it to repeat this run)"


# What pytest collects stays until its end. A search for garbage among it takes longer than most tests.
gc.disable()


def pytest_collection_finish() -> None:
    _wait_for_no_disk()
    gc.collect()
    gc.freeze()
    gc.enable()


def _wait_for_no_disk() -> None:
    """Let this process's stores and files reach the disk when the system likes: no test takes the power away.

    A store waits for the disk at each write, 10 ms each: a quarter of the tests of searches in rungs. The processes of
    jobs wait as users' do. ``tests/store/test_store.py`` holds that stores of users wait.
    """
    os.fsync = lambda _: None
    if database := sys.modules.get("syno_lab.store.database"):
        prepare = database.prepare

        @functools.wraps(prepare)
        def hasty(connection: sqlite3.Connection) -> None:
            prepare(connection)
            connection.execute("PRAGMA synchronous=OFF")

        database.prepare = hasty


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are other ones in every run: ``make chance`` runs them several times."""
    for item in items:
        if "fresh_seed" in getattr(item, "fixturenames", ()):
            item.add_marker("draws")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    draws = metafunc.config.getoption("--draws")
    if draws > 1 and "fresh_seed" in metafunc.fixturenames:
        metafunc.parametrize("fresh_seed", range(draws), indirect=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it again below a failure: a short report has no header."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"SYNO_LAB_SEED={SEED}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Tests marked ``cold`` start every process; those marked ``warm`` fork their programs too (``warm.py``)."""
    is_cold, is_warm = (item.get_closest_marker(name) is not None for name in ("cold", "warm"))
    with warm.forking("none" if is_cold else "programs" if is_warm else "own"):
        return (yield)


@pytest.fixture(autouse=True)
def _torch_begins_anew() -> None:
    """Weights and inputs that a test lets torch draw do not hang on the tests before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch computes on one thread, so that equal trainings have equal results."""
    import torch  # most tests do without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden("loops/conv2d.txt", text)`` compares with a stored text; a missing one fails.

    ``--update-golden`` writes it instead: read the difference before you commit it.
    """

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        assert len(text.encode()) < GOLDEN_BYTES, f"{name}: a golden text stays under {GOLDEN_BYTES} bytes"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: write it with --update-golden and read it"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def fresh_seed(request: pytest.FixtureRequest) -> int:
    """That of this run, for a test that makes its own generators of it; with ``--draws`` several far apart."""
    return SEED + 1_000_003 * getattr(request, "param", 0)


@pytest.fixture
def rng(fresh_seed: int) -> random.Random:
    """Chance for one test, the same in every run with the same seed."""
    return random.Random(fresh_seed)


@pytest.fixture
def np_rng(fresh_seed: int) -> np.random.Generator:
    """The same for arrays."""
    return np.random.default_rng(fresh_seed)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A spec file for ``--spec`` whose space is searched whole in no time."""
    from command_line import TINY  # brings the whole command line with it, which most tests do without

    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return str(path)


@pytest.fixture(scope="session")
def fetched_board() -> None:
    """Skips where no emulated board was fetched, so that no test downloads anything; one that is broken is an error."""
    from syno_lab.tuning.emulated_files import _record, _target, boards_folder, find_board

    if not _record(_target(boards_folder())).exists():
        pytest.skip(f"no emulated board in {boards_folder()}: `syno-lab board --emulate --fetch` fetches one")
    find_board()


CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests: Playwright's synchronous interface can be started only once in a process."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("SYNO_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "browser tests need Chromium (Debian: apt install chromium), or its path in SYNO_CHROMIUM"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return the folder of one official form, from SYNO_LAB_DATA or ../shared/data beside the repository."""

    def find(form: str) -> Path:
        named = os.environ.get("SYNO_LAB_DATA")
        places = [Path(named)] if named else []
        places.append(Path(__file__).resolve().parents[1].parent / "shared" / "data")
        for place in places:
            for folder in (place / form, place.parent / form):
                if folder.is_dir():
                    return folder
        pytest.skip(f"no {form} in {' or '.join(map(str, places))}; set SYNO_LAB_DATA to the folder that holds it")

    return find
