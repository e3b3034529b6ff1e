"""The help of every command, and what the shell completes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import answered, every_command

COMMANDS = dict(every_command())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_all_that_is_written_is_shown(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # so that no text is broken
    shown = re.sub(r" +", " ", answered(capsys, *words, "--help"))
    for parameter in COMMANDS[words].params:
        if not parameter.hidden and parameter.name != "help":
            unmasked = (parameter.help or "").replace("\\[", "[")
            said = re.sub(r"\s+", " ", unmasked).strip()
            assert said in shown, "rich takes what stands in brackets for markup"


def test_a_shell_completes_commands_options_and_operators() -> None:
    program = Path(sys.executable).with_name("syno-lab")
    asked = ("show pixel", "tune conv2d --trac", "show conv2d --as late")
    steps = [
        f"COMP_WORDS=(syno-lab {words}); COMP_CWORD={len(words.split())}; _syno_lab_completion {program}; "
        'echo "${COMPREPLY[@]}"'
        for words in asked
    ]
    script = "; ".join([f'eval "$({program} --show-completion bash)"', *steps])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["pixel_shuffle pixel_unshuffle", "--tracker", "latex"]
