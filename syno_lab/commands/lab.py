"""``syno-lab lab``: open JupyterLab on a copy of the tour, with all notebooks and the kernel "Syno Lab"."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

import syno_lab
from syno_lab.commands import kernel
from syno_lab.commands.output import write_json
from syno_lab.errors import SynoError
from syno_lab.processes.process import module_command

TOUR = "01_tour.ipynb"
COURSE = "course"
WIDGET = "application/vnd.jupyter.widget-view+json"
KERNELS = Path(".syno-lab") / "jupyter"  # path relative to the folder of the copies


def notebooks_folder() -> Path:
    """Return the folder of notebooks in the repository of this package.

    Raises SynoError if the package was installed without the notebooks.
    """
    folder = Path(syno_lab.__file__).resolve().parent.parent / "notebooks"
    if not (folder / TOUR).is_file():
        raise SynoError(
            f"expected the notebooks of the repository in {folder}, found none: this Syno Lab was installed without "
            "them; clone the repository and install it with `pip install -e .`"
        )
    return folder


def copy_notebooks(folder: Path) -> list[Path]:
    """Copy all notebooks into ``folder`` for the kernel "Syno Lab"; return the paths of the new copies.

    An existing copy keeps its content and its kernel.

    Raises SynoError if there is no tour or the folder cannot be written to.
    """
    source = notebooks_folder()
    copy, new = folder / TOUR, []
    try:
        for notebook in (*sorted(source.glob("*.ipynb")), *sorted((source / COURSE).glob("*.ipynb"))):
            copy = folder / notebook.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists():
                copy.write_text(_for_our_kernel(notebook.read_text(encoding="utf-8")), encoding="utf-8")
                new.append(copy)
    except OSError as error:
        raise SynoError(f"expected to copy a notebook to {copy}, found: {error.strerror or error}") from None
    return new


def _for_our_kernel(notebook: str) -> str:
    """Return the notebook's text with the kernel "Syno Lab", and without its widgets; their pictures stay."""
    book = msgspec.json.decode(notebook)
    for cell in book["cells"]:
        if "outputs" in cell:
            cell["outputs"] = [output for output in cell["outputs"] if WIDGET not in output.get("data", ())]
    chosen = {"display_name": kernel.DISPLAY_NAME, "language": "python", "name": kernel.NAME}
    book["metadata"]["kernelspec"] = chosen
    return msgspec.json.format(msgspec.json.encode(book), indent=1).decode() + "\n"


def offer_kernel(folder: Path) -> Path | None:
    """Make the kernel "Syno Lab" visible only to the JupyterLab that this process becomes.

    Return the kernel's folder, below ``folder``; None if Jupyter already finds the kernel of this Python.

    Raises SynoError if the folder cannot be written to.
    """
    if any(row["name"] == kernel.NAME and row["python"] == sys.executable for row in kernel.ask("list")):
        return None
    prefix = (folder / KERNELS).absolute()
    kernel_folder = Path(kernel.ask("install", f"--prefix={prefix}")["folder"])
    paths = [str(kernel_folder.parents[1]), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    os.environ["JUPYTER_PATH"] = os.pathsep.join(paths)
    return kernel_folder


def command(
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- JUPYTERLAB OPTIONS]", help="Options for JupyterLab, such as -- --allow-root."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder for the copies, in which JupyterLab starts.")] = Path(),
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The server's port. [default: the first free one from 8888]")
    ] = None,
) -> None:
    """Open JupyterLab on a copy of the tour, all other notebooks beside it, with the kernel "Syno Lab" and its tile.

    Existing copies are kept. Only this JupyterLab finds the kernel, which stays in .syno-lab.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise SynoError("expected JupyterLab in this Python, found none; install it with `pip install jupyterlab`")
    if new := copy_notebooks(folder):
        kernel.ask("trust", *map(str, new))  # otherwise Jupyter hides the pictures of these notebooks of the repository
    notebook = folder / TOUR
    offer_kernel(folder)
    write_json({"notebook": str(notebook.resolve())})
    arguments = module_command("jupyterlab", str(notebook))
    # Without encryption every user of this machine could read the output of cells. "auto" permits kernels without it.
    arguments.append("--KernelManager.transport_encryption=auto")
    if not browser:
        arguments.append("--no-browser")
    if port is not None:
        arguments += [f"--port={port}", "--port-retries=0"]
    arguments += options or []
    sys.stdout.flush()
    # The server replaces this process, so that it receives Ctrl-C and other signals.
    os.execv(sys.executable, arguments)  # noqa: S606 - the arguments are built here
