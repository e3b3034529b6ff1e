"""What commands print: whatever is in a name or a file, nothing of it reaches the terminal but letters."""

import pytest

from syno_lab.cli import main
from syno_lab.commands.output import Reporter, say, say_table, tell

EVIL = "a\x1b[2J\x07\u202e\x9bb"
SAFE = "a�[2J���b"


def test_lines_tables_and_progress_move_no_cursor(capsys):
    say(f"{EVIL}\n\t{EVIL}")
    say_table([{"name": EVIL, "number": 3, "path": "x" * 9000}])
    tell(EVIL * 1000)
    with Reporter() as report:
        report("search", 0.5, EVIL)
    said = capsys.readouterr()
    assert said.out.startswith(f"{SAFE}\n\t{SAFE}\n")
    assert any(line.startswith(SAFE) for line in said.out.splitlines()[2:])
    assert said.out.count("x") <= 600
    first, *rest = said.err.splitlines()
    assert len(first) == 500
    assert SAFE in rest[0]
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(said.out + said.err)


def test_a_bar_says_the_last_message_before_long_work(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Reporter() as report:
        for number in range(50):
            report("doctor", number / 50, f"check {number}.")
    assert "check 49." in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["show", f"{EVIL}.json"],
        ["show", "c" * 6000],
        [EVIL + "c" * 6000],
        ["sample", "--count", "9" * 5000],
        ["sample", f"--{EVIL * 500}"],
        ["sample", "--spec", "a\0b"],
        ["show", "conv2d", "--bind", "C_in=" + "9" * 5000],
        ["show", "conv2d", "--bind", f"{EVIL}=3"],
        ["train", "matmul", "--data", "d" * 6000],
        ["jobs", "show", "9" * 5000],
    ],
    ids=lambda words: words[0][:8],
)
def test_bad_words_are_answered_in_one_short_line(words, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.removesuffix("\n").isprintable()
    assert len(said) < 600
