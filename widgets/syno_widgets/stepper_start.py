"""How a stepper begins and what it says at the end: the session of what is to be shown, and the ways on."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted, read_text
from syno_lab.protocol import Operator
from syno_lab.session_protocol import Session
from syno_lab.systems import all_systems, is_operator, session_of

#: Bytes of a text that is opened.
MAX_BYTES = 1 << 22
#: What can be done with a complete operator; the code is for a cell in which ``stepper`` is the widget.
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
    """The session of an operator, of the name of a known one, or of a text or a file with an operator or a session."""
    if is_operator(operator):
        return session_of(operator)
    known = {name: make for system in all_systems() for name, make in system.known().items()}
    if isinstance(operator, str) and operator in known:
        return session_of(known[operator]())
    text = str(operator)
    if isinstance(operator, Path) or not text.lstrip().startswith(("{", "syno-session:")):
        try:
            text = read_text(text, MAX_BYTES)
        except (OSError, ValueError) as error:
            raise SpecError(
                f"expected an operator, a file of one, or one of {', '.join(known)}; found {quoted(text)}, which "
                f"cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from None
    return session_of(text)


def send_now() -> None:
    """Wait until the messages are sent: a kernel sends from a thread, which the next work would delay."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # nobody listens any more
            sys.stdout.flush()
