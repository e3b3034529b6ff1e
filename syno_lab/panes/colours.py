"""Colours of syntax: which part of a program is a keyword, a number, a text or a comment.

Pygments reads the program; a page needs only the kinds.
"""

from __future__ import annotations

from syno_lab.panes.data import Piece

#: Kinds of pieces by the families of Pygments' tokens; a piece without a kind is plain.
_KINDS = {
    "Token.Keyword": "keyword",
    "Token.Operator.Word": "keyword",
    "Token.Name.Builtin": "builtin",
    "Token.Name.Decorator": "builtin",
    "Token.Literal.Number": "number",
    "Token.Literal.String": "string",
    "Token.Comment": "comment",
}


def coloured(text: str) -> list[Piece]:
    """Python text as pieces with ``text``, and ``kind`` where one has a colour; put together they are the text."""
    from pygments.lexers.python import PythonLexer

    pieces: list[Piece] = []
    for token, part in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        name = str(token)
        kind = next((kind for family, kind in _KINDS.items() if name == family or name.startswith(f"{family}.")), "")
        if not part:
            continue
        if pieces and pieces[-1].get("kind", "") == kind:
            pieces[-1]["text"] += part
        else:
            pieces.append({"text": part, "kind": kind} if kind else {"text": part})
    return pieces
