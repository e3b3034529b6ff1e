"""Whatever code of the user's own raises is one line with its place, and nothing else is taken for theirs."""

from __future__ import annotations

import dis
import sys
import warnings
from pathlib import Path

import msgspec
import pytest

from syno_lab.blame import blamed, guest, is_of_a_guest, is_theirs, is_users_file, said_by
from syno_lab.errors import CodeError, DataError
from syno_lab.user_code import UserCode, user_code


class OddError(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("no text")


class UnsendableError(Exception):
    """An exception that no pickle brings back."""

    def __init__(self, one: object, two: object) -> None:
        super().__init__("two arguments")


def caught(text: str, folder: Path, **names: object) -> BaseException:
    """What a text raises that is in a file of the user's."""
    file = folder / "mine.py"
    file.write_text(text)
    with pytest.raises(BaseException) as found:  # noqa: PT011 - of any kind
        exec(compile(text, str(file), "exec"), {"__name__": "mine", **names})
    return found.value


LOADER = (
    'Caught ValueError in DataLoader worker process 0.\\nOriginal Traceback:\\n  File "/a/data.py", line 7, in f\\n'
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (mine.py, line 1)"),
        ("\n\nraise SystemExit(3)", "SystemExit: 3 (mine.py, line 3)"),
        ("import sys\nsys.exit('no data')", "SystemExit: no data (mine.py, line 2)"),
        ("raise KeyError('a\\nb')", r"KeyError: 'a\nb' (mine.py, line 1)"),
        ("raise OddError", "OddError (mine.py, line 1)"),
        ("raise ValueError", "ValueError (mine.py, line 1)"),
        ("raise ValueError('\\n\\n  one\\ntwo')", "ValueError: one (mine.py, line 1)"),
        ("raise ValueError('\\x1b[2J')", "ValueError: \N{REPLACEMENT CHARACTER}[2J (mine.py, line 1)"),
        ("raise UnsendableError(1, 2)", "UnsendableError: two arguments (mine.py, line 1)"),
        ("raise StopIteration(4)", "StopIteration: 4 (mine.py, line 1)"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded (mine.py, line 1)"),
        ("import json\njson.loads('{')", "JSONDecodeError: Expecting property name enclosed in double quotes: line 1"),
        (
            "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])",
            "two (2 sub-exceptions), the first ValueError: 1",
        ),
        ("raise DeprecationWarning('old')", "DeprecationWarning: old (mine.py, line 1)"),
        ("raise ValueError('x' * 10**7)", "x… (mine.py, line 1)"),
    ],
)
def test_any_exception_is_one_line_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    error = caught(text, tmp_path, OddError=OddError, UnsendableError=UnsendableError)
    assert said in said_by(error)
    assert "\n" not in said_by(error)
    assert len(said_by(error)) < 400
    with pytest.raises(DataError, match=r"^data: ") as refusal, blamed("data", DataError):
        raise error
    assert refusal.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RuntimeError("CUDA out of memory")])
def test_ctrl_c_and_a_lack_of_memory_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as found, blamed("data"):
        raise error
    assert found.value is error


def test_what_a_handler_of_signals_raises_is_not_theirs(tmp_path: Path) -> None:
    ours: dict[str, object] = {"__name__": "syno_lab.cli"}
    exec("def leave(): raise SystemExit(143)", ours)
    assert not is_theirs(caught("leave()", tmp_path, leave=ours["leave"]))
    assert is_theirs(caught("raise SystemExit(143)", tmp_path))


def test_a_file_has_arguments_and_filters_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import argparse, sys, warnings\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', default=0.5, type=float)\n"
        "args = parser.parse_args()\n"
        "warnings.simplefilter('error')\n"
        "print('hello')\n"
        "def rate():\n    return args.lr\n"
        "def fails():\n    return parser.parse_args(['--rate'])\n"
    )
    before, filters = list(sys.argv), list(warnings.filters)
    assert user_code(f"{file}:rate").function()() == 0.5
    assert sys.argv == before
    assert [one for one in warnings.filters if one[0] == "error"] == [one for one in filters if one[0] == "error"]
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "hello\n")
    function = user_code(f"{file}:fails").function()
    with (
        pytest.raises(CodeError, match=r"fails: SystemExit: 2, train.py: error: unrecognized .* \(train.py, line 10\)"),
        blamed("fails"),
        guest(str(file)),
    ):
        function()
    assert capsys.readouterr().err == "hello\n"  # argparse's usage is not shown as if it were ours


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import argparse\nmake = argparse.ArgumentParser()\nmake.add_argument('-a', required=True)\nmake.parse_args()",
         r"SystemExit: 2, net.py: error: the following arguments are required: -a \(net.py, line 4\)"),
        ("import sys\nsys.exit('give a GPU')\nmake = 1\n", r"SystemExit: give a GPU \(net.py, line 2\)"),
        ("import nowhere\nmake = 1\n", r"ModuleNotFoundError: No module named 'nowhere' \(net.py, line 1\)"),
        ("x = 1 +\n", r"net.py, line 1: invalid syntax"),
        ("if 0:\n    make = 1\n", r"expected 'make' in .*net.py, found none after it ran"),
        ("make = {}\n", "expected a function 'make' in .*net.py, found a dict"),
        ("def made(): pass\ndef other(): pass\n", "expected a function 'make' in .*, found none; it has made, other"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_run_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(text)
    with pytest.raises(CodeError, match=said) as refusal:
        user_code(f"{tmp_path / 'net.py'}:make").function()
    assert "\n" not in str(refusal.value)


def test_an_exception_that_came_through_a_file_that_was_run_is_of_it(tmp_path: Path) -> None:
    file = tmp_path / "run" / "net.py"
    file.parent.mkdir()
    file.write_text("def f():\n    raise AttributeError('x')\n")
    function = user_code(f"{file}:f").function()
    with pytest.raises(AttributeError) as found:
        function()
    assert is_of_a_guest(found.value)
    assert not is_of_a_guest(caught("1 / 0", tmp_path))


def test_the_folder_of_a_file_with_a_relative_name_is_where_it_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "run")
    with guest("net.py"):
        pass
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert is_of_a_guest(caught("1 / 0", tmp_path / "run"))
    assert not is_of_a_guest(caught("1 / 0", tmp_path / "elsewhere"))


def test_a_folder_whose_name_begins_as_that_of_pythons_own_is_the_users() -> None:
    standard = Path(dis.__file__).parent
    assert is_users_file(f"{standard}-mine/net.py")
    assert not is_users_file(f"{standard}/json/decoder.py")


# -- the modules that a file imports ---------------------------------------------------------------------------------

NET = "from {package}blocks import WIDTH\n\ndef width():\n    return WIDTH\n"


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def written(folder: Path, files: dict[str, str]) -> UserCode:
    """The code of ``net.py:width`` in a folder with these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return user_code(f"{folder / 'net.py'}:width")


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({"net.py": "from zoo import found\ndef width(): return found['wide']\n", "zoo/wide.py": "WIDTH = 8\n",
          "zoo/__init__.py": "import importlib\n"
          "found = {n: importlib.import_module(f'zoo.{n}').WIDTH for n in ['wide']}\n"},
         "zoo/wide.py"),
        ({"net.py": NET.format(package=""), "blocks.py": "WIDTH = 8\n"}, "blocks.py"),
        ({"net.py": NET.format(package="al."), "al/__init__.py": "", "al/blocks.py": "WIDTH = 8\n"}, "al/blocks.py"),
        ({"net.py": NET.format(package="space."), "space/blocks.py": "WIDTH = 8\n"}, "space/blocks.py"),
        ({"net.py": "from deep import WIDTH\ndef width(): return WIDTH\n", "deep/__init__.py": "from .a import *\n",
          "deep/a.py": "from . import b\nfrom .b import WIDTH\n", "deep/b.py": "WIDTH = 8\n"}, "deep/b.py"),
        ({"net.py": "def width():\n    import later\n    return later.WIDTH\n", "later.py": "WIDTH = 8\n"}, "later.py"),
        ({"net.py": "import importlib\nWIDTH = importlib.import_module('named').WIDTH\ndef width(): return WIDTH\n",
          "named.py": "WIDTH = 8\n"}, "named.py"),
    ],
    ids=["made as it runs", "file", "package", "namespace", "relative", "in a function", "by name"],
)  # fmt: skip
def test_what_is_beside_a_file_counts(files: dict[str, str], changed: str, tmp_path: Path, path: None) -> None:
    code = written(tmp_path, files)
    assert code.function()() == 8
    assert UserCode.from_dict(msgspec.to_builtins(code)) == code
    other = written(tmp_path, {changed: "WIDTH = 64\n"})
    assert other.name == code.name
    assert other.digest != code.digest
    with pytest.raises(CodeError, match=r"net.py: expected the modules that it imports as they were when it was named"):
        code.function()  # a job of before
    assert other.function()() == 64  # and not what this process has imported before
    again = written(tmp_path, {changed: "WIDTH = 8\n"})
    assert again == code


def test_modules_of_one_name_in_two_folders_are_two(tmp_path: Path, path: None) -> None:
    files = {"net.py": NET.format(package=""), "blocks.py": "WIDTH = 8\n"}
    first, second = written(tmp_path / "a", files), written(tmp_path / "b", files | {"blocks.py": "WIDTH = 16\n"})
    assert first.digest != second.digest
    assert [one.function()() for one in (first, second, first)] == [8, 16, 8]


def test_installed_packages_and_files_that_are_not_imported_do_not_count(tmp_path: Path) -> None:
    code = written(
        tmp_path, {"net.py": "import json, torch.nn\ndef width(): return 8\n", "other.py": "", "torch.txt": ""}
    )
    assert code.modules == ""
    assert UserCode(code.name, code.source, code.origin).digest == code.digest
    assert sorted(msgspec.to_builtins(code)) == ["name", "origin", "source"]


def test_imports_that_the_text_does_not_say_are_refused(tmp_path: Path, path: None) -> None:
    code = written(
        tmp_path,
        {
            "net.py": "import sys, os\nsys.path.append(os.path.dirname(__file__) + '/src')\nimport hidden\nwidth = 8\n",
            "src/hidden.py": "",
        },
    )
    with pytest.raises(CodeError, match=rf"found hidden of .*: set PYTHONPATH={tmp_path}/src or install it"):
        code.function()
