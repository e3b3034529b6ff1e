"""Text as bytes and characters, and images at another size."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.errors import DataError, SpecError
from syno_lab.models import AtResolution, Tokens, scale_images, tokens_for


@given(st.text())
def test_bytes_take_every_text(text):
    tokens = tokens_for(text)
    assert tokens.size == 256
    numbers = tokens.encode(text)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == list(text.encode())
    assert tokens.decode(numbers) == text


@given(st.text(min_size=1), st.data())
def test_characters_are_those_of_the_text(text, data):
    tokens = tokens_for(text, "characters")
    assert tokens.alphabet == "".join(sorted(set(text)))
    assert tokens.size == len(set(text))
    part = data.draw(st.lists(st.sampled_from(text)).map("".join))
    assert tokens.encode(part).tolist() == [tokens.alphabet.index(letter) for letter in part]
    assert tokens.decode(tokens.encode(part)) == part


def test_an_alphabet_keeps_its_order():
    tokens = Tokens("cab")
    assert tokens.encode("abc").tolist() == [1, 2, 0]
    assert tokens.encode("").tolist() == []


def test_half_a_character_is_shown_as_such():
    assert Tokens().decode(Tokens().encode("é")[:1]) == "\N{REPLACEMENT CHARACTER}"


def test_what_is_no_token_is_refused():
    with pytest.raises(DataError, match="characters of an alphabet of 2, found 'x' at 3; take bytes"):
        Tokens("ab").encode("abax")
    with pytest.raises(DataError, match="expected tokens from 0 to 1, found 0 to 2"):
        Tokens("ab").decode(np.array([0, 2]))
    for alphabet in ("", "aa"):
        with pytest.raises(SpecError, match="an alphabet has each of its characters once"):
            Tokens(alphabet)
    with pytest.raises(SpecError, match="tokens: expected one of 'bytes', 'characters', 'bpe', found 'words'"):
        tokens_for("a", "words")


def test_images_are_scaled_bilinearly():
    row = torch.tensor([0.0, 4.0]).expand(1, 1, 2, 2)
    # Pixels are squares: new centres are at -1/4, 1/4, 3/4 and 5/4 of the old distance.
    assert scale_images(row, 4)[0, 0, 0].tolist() == [0.0, 1.0, 3.0, 4.0]
    same = torch.rand(2, 3, 8, 8)
    assert scale_images(same, 8) is same
    assert scale_images(same, 224).shape == (2, 3, 224, 224)


def test_shrinking_averages():
    stripes = torch.tensor([0.0, 1.0]).repeat(32).expand(1, 1, 64, 64)
    torch.testing.assert_close(scale_images(stripes, 8)[..., 2:-2], torch.full((1, 1, 8, 4), 0.5), rtol=0, atol=0.02)


def test_a_network_at_a_resolution_sees_that_size():
    seen = []
    net = AtResolution(torch.nn.Identity(), 12)
    net.network.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape))
    net(torch.rand(2, 3, 5, 7))
    assert seen == [(2, 3, 12, 12)]
    with pytest.raises(SpecError, match="an image needs resolution as a whole number from 1 up, found 0"):
        AtResolution(torch.nn.Identity(), 0)
    with pytest.raises(SpecError, match="an image needs resolution as a whole number from 1 up, found 0"):
        scale_images(torch.rand(1, 1, 2, 2), 0)


@given(st.text())
def test_learnt_pieces_take_every_text(text):
    tokens = tokens_for("the cat and the hat and the bat\n" * 8, "bpe", 280)
    numbers = tokens.encode(text)
    assert tokens.decode(numbers) == text
    assert tokens.lengths[numbers].sum() == len(text.encode())
    assert len(numbers) <= len(text.encode())


def test_pieces_are_those_that_occur_most():
    """Of "ab" 3 times, "cd" once: the first pair that is learnt is a and b."""
    tokens = tokens_for("ab ab ab cd", "bpe", 257)
    assert tokens.size == 257
    assert tokens.lengths.tolist() == [1] * 256 + [2]
    assert tokens.decode(np.array([256])) == "ab"
    assert tokens == tokens_for("ab ab ab cd", "bpe", 257)
    with pytest.raises(DataError, match="expected words to learn tokens from, found a text without letters and digits"):
        tokens_for(" .\n" * 9, "bpe")
    with pytest.raises(SpecError, match="vocabulary: expected a whole number from 257 to 131072, found 256"):
        tokens_for("a", "bpe", 256)
    with pytest.raises(SpecError, match="tokens: expected an alphabet or a learnt tokenizer, found both"):
        Tokens("ab", tokens.learnt)
