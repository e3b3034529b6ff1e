"""Programs in pieces with colours of syntax."""

from __future__ import annotations

import io
import keyword
import tokenize

import pytest

from syno_lab.codegen.loops import loops
from syno_lab.operators import KNOWN
from syno_lab.panes.generic import coloured


@pytest.mark.parametrize("name", KNOWN)
def test_pieces_are_the_text_and_python_s_own_tokenizer_agrees(name: str) -> None:
    operator = KNOWN[name]()
    text = loops(operator)
    pieces = coloured(text)
    assert "".join(piece["text"] for piece in pieces) == text
    words = {word for piece in pieces if piece.get("kind") == "keyword" for word in piece["text"].split()}
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    assert words == {token.string for token in tokens if keyword.iskeyword(token.string)} - {"True", "False", "None"}
    comments = "".join(piece["text"] for piece in pieces if piece.get("kind") == "comment")
    assert comments == "".join(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("text", ["", "\n", "  x\n\n", "for", "'", "\x00§", "<b>"])
def test_any_text_stays_what_it_is(text: str) -> None:
    assert "".join(piece["text"] for piece in coloured(text)) == text
