"""The help of commands and what the shell completes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer.core
from rich.markup import escape


class HelpingCommand(typer.core.TyperCommand):
    """A command whose help is text: rich would take ``[default: none]`` for markup, and leave it out."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; a command is built anew for each process and call, so nothing is escaped twice."""
        for parameter in self.params:
            said = getattr(parameter, "help", None)
            if said:
                parameter.help = escape(said)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def complete_operator(incomplete: str) -> Iterable[str]:
    """The names of known operators that begin so; where there is none, the shell completes files."""
    from syno_lab.commands.operands import known_operators

    return [name for name in known_operators() if name.startswith(incomplete)]
