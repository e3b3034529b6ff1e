"""Fixtures for all tests: golden texts, and one printed seed for everything that tests draw by chance."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_BYTES = 50_000
# Fresh in every run, and kept in the environment so that child processes draw the same.
SEED = int(os.environ.setdefault("SYNO_LAB_SEED", str(random.SystemRandom().randrange(1 << 30))))

# A shell starts what runs in the background with SIGINT ignored, and our children would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test asserts a time, and a counterexample is printed so that it can be run again.
settings.register_profile("syno", deadline=None, print_blob=True)
settings.load_profile("syno")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden texts with what the code gives now"
    )


def pytest_report_header() -> str:
    return f"SYNO_LAB_SEED={SEED} (set it to repeat this run)"


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
def rng() -> random.Random:
    """Chance for one test, the same in every run with the same seed."""
    return random.Random(SEED)


@pytest.fixture
def np_rng() -> np.random.Generator:
    """The same for arrays."""
    return np.random.default_rng(SEED)


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
    from syno_lab.evaluate.tuning.emulated_files import boards_folder, find_board, is_fetched

    if not is_fetched():
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
