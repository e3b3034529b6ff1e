"""What all tests share: golden texts, and the seed on the first line."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
os.environ.setdefault("SYNO_LAB_SEED", str(random.SystemRandom().randrange(1 << 30)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` writes golden texts instead of comparing."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden texts")


def pytest_report_header() -> str:
    """The seed of everything random in this run; set it again to repeat the run."""
    return f"SYNO_LAB_SEED={os.environ['SYNO_LAB_SEED']}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(text, "room/name.txt")`` compares with ``tests/golden/room/name.txt``; a missing file fails."""

    def compare(text: str, name: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing; look at the text and run pytest with --update-golden:\n{text}"
        assert text == path.read_text(encoding="utf-8")

    return compare
