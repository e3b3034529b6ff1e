"""The real images that tests read: cut to size, in the official forms, never part of the repository."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return the folder of one official form, from SYNO_LAB_DATA or ../shared/data beside the repository."""

    def find(form: str) -> Path:
        named = os.environ.get("SYNO_LAB_DATA")
        places = [Path(named)] if named else []
        places.append(Path(__file__).resolve().parents[2].parent / "shared" / "data")
        for place in places:
            for folder in (place / form, place.parent / form):
                if folder.is_dir():
                    return folder
        pytest.skip(f"no {form} in {' or '.join(map(str, places))}; set SYNO_LAB_DATA to the folder that holds it")

    return find
