"""``syno-lab kernel``: install the kernel "Syno Lab" for Jupyter, remove it, or list the installed kernels."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from syno_lab import private
from syno_lab.commands.output import say, say_table, write_json
from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.processes.process import output_of
from syno_lab.store.place import FOLDER_VARIABLE

NAME = "syno-lab"
DISPLAY_NAME = "Syno Lab"
_PROGRAM = "syno_widgets.kernelspec"  # use a child process, because the engine must not import Jupyter

app = typer.Typer(help='The Jupyter kernel "Syno Lab".', no_args_is_help=True)

NameOption = Annotated[str, typer.Option(help="The kernel's name for Jupyter; letters, digits, -, . and _.")]


@app.command()
def install(
    user: Annotated[bool, typer.Option("--user", help="For every Jupyter of this user.")] = False,
    prefix: Annotated[Path | None, typer.Option(metavar="PATH", help="Into PATH/share/jupyter/kernels.")] = None,
    sys_prefix: Annotated[
        bool, typer.Option("--sys-prefix", help="For the Jupyter of this Python's environment (the default).")
    ] = False,
    name: NameOption = NAME,
    folder: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Its lab's folder. [default: .syno-lab beside each notebook]")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A variable of its environment; may be repeated."),
    ] = None,
) -> None:
    """Install the kernel for Jupyter. The kernel runs this Python; a new installation replaces the old one."""
    if user + sys_prefix + (prefix is not None) > 1:
        raise SynoError("expected one of --user, --prefix and --sys-prefix, found several")
    variables = [_variable(text) for text in env or []]
    if folder is not None:
        variables.append(f"{FOLDER_VARIABLE}={folder.absolute()}")
    arguments = ["install", f"--name={name}", *(f"--env={text}" for text in variables)]
    arguments += ["--user"] if user else [f"--prefix={prefix.absolute() if prefix else sys.prefix}"]
    installed = ask(*arguments)
    say(f"{installed['display_name']}: installed as {installed['name']} in {installed['folder']}")
    if not installed["finds"]:
        share = Path(installed["folder"]).parent.parent
        say(f"this environment's Jupyter does not look there; add {share} to JUPYTER_PATH for it")
    write_json(installed)


@app.command()
def remove(name: NameOption = NAME) -> None:
    """Remove the kernel. Its lab and its jobs stay."""
    removed = ask("remove", f"--name={name}")
    say(f"{removed['name']}: removed from {removed['folder']}")
    write_json(removed)


@app.command(name="list")
def list_kernels() -> None:
    """List the kernels of Syno Lab that Jupyter finds."""
    kernels = ask("list")
    say_table([{**row, "env": " ".join(f"{name}={value}" for name, value in row["env"].items())} for row in kernels])
    if not kernels:
        say("no kernel is installed; `syno-lab kernel install` installs one")
    write_json(kernels)


def _variable(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not equals or not name.isidentifier():
        raise SynoError(f"--env: expected NAME=VALUE such as CUDA_VISIBLE_DEVICES=0, found {quoted(text)}")
    return text


@private.usual()  # usual permissions: all users of this Python may use the kernel
def ask(*arguments: str) -> Any:
    """Run ``python -m syno_widgets.kernelspec`` with these arguments, and return its output.

    Raises SynoError with the program's message if the program fails.
    """
    missing = [module for module in ("syno_widgets", "ipykernel") if importlib.util.find_spec(module) is None]
    if missing:
        raise SynoError(f"expected {missing[0]} in this Python, found none; install Syno Lab with its requirements")
    return msgspec.json.decode(output_of(_PROGRAM, *arguments))
