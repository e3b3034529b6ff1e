"""What runs on a board needs Python and TVM alone: a board has none of the packages of this machine."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.cold

BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "syno_lab":
            raise ModuleNotFoundError(f"a board has no {top}")

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("module", ["syno_lab.processes.serve", "syno_lab.processes.board_server"])
def test_a_board_needs_python_and_tvm_alone(module: str) -> None:
    # TVM itself is imported when it is served, so that without it this fails on any other package alone.
    done = subprocess.run(
        [sys.executable, "-c", f"{BLOCKED}\nimport {module}"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


def test_the_blocker_blocks() -> None:
    done = subprocess.run([sys.executable, "-c", f"{BLOCKED}\nimport msgspec"], capture_output=True, timeout=240)
    assert done.returncode != 0
