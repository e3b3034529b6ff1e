"""The help of commands and what the shell completes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer.core
from rich.markup import escape


class HelpingCommand(typer.core.TyperCommand):
    """A command whose help is text: rich would take ``[default: none]`` for markup, and leave it out."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _escape(self.params)
        super().format_help(ctx, formatter)


class HelpingGroup(typer.core.TyperGroup):
    """The same for a group of commands that has options of its own."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _escape(self.params)
        super().format_help(ctx, formatter)


def _escape(parameters: Iterable[Any]) -> None:
    """Mask what looks like markup. Commands are built anew for each call, so nothing is masked twice."""
    for parameter in parameters:
        if said := getattr(parameter, "help", None):
            parameter.help = escape(said)


def complete_operator(incomplete: str) -> Iterable[str]:
    """The names of known operators that begin so; where there is none, the shell completes files."""
    from syno_lab.systems import known_operators

    return [name for name in known_operators() if name.startswith(incomplete)]
