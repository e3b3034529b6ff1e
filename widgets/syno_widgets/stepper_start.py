"""The session with which a stepper begins, and the next actions that it shows for a complete operator."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from syno_lab.protocol import Operator
from syno_lab.sessions.session import Session, session_of
from syno_lab.systems import opened

#: Next actions with a complete operator; the code is for a cell in which ``stepper`` is the widget.
WAYS_ON = tuple(
    {"title": title, "code": code}
    for title, code in {
        "Look at it": "from syno_widgets import OperatorView\nOperatorView(stepper.operator)",
        "Compare it": (
            "import syno_lab as sl\nfrom syno_widgets import Compare\nCompare(stepper.operator, sl.operators.conv2d())"
        ),
        "Keep it as a file": 'from pathlib import Path\nPath("operator.json").write_text(stepper.operator.to_json())',
        "Train it (that file)": "!syno-lab train operator.json",
        "Export it as a file that needs torch alone (that file)": "!syno-lab export operator.json --out operator.py",
        "Share this session as a page": 'stepper.to_html("session.html")',
    }.items()
)


def session_to_show(operator: Operator | str | Path) -> Session:
    """Return the session of an operator, a known operator's name, or a text or file with an operator or session."""
    return session_of(opened(operator))


def send_now() -> None:
    """Flush the messages: a kernel sends them from a thread, which the next work would delay."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # the kernel's connection is closed
            sys.stdout.flush()
