"""The kernelspec "Syno Lab", from which Jupyter starts the kernel of :mod:`syno_widgets.kernel`.

``syno-lab kernel`` runs this module as a program, because the engine must not import Jupyter. It prints JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from ipykernel.kernelspec import get_kernel_dict, make_ipkernel_cmd
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from nbformat.sign import NotebookNotary

import syno_lab
from syno_lab.errors import SynoError

NAME = "syno-lab"
DISPLAY_NAME = "Syno Lab"
MODULE = "syno_widgets.kernel"
_LOGOS = Path(__file__).parent / "kernelspec_files"


def specification(name: str = NAME, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the content of ``kernel.json``.

    ``env`` is added to the kernel's environment, for example ``SYNO_LAB_FOLDER`` or ``CUDA_VISIBLE_DEVICES``.
    """
    # -P: a file beside the notebook must not replace a module of the lab; the kernel adds the folder later. Frozen
    # modules hide their lines from the debugger.
    own = get_kernel_dict()
    return {
        **own,
        "argv": make_ipkernel_cmd(MODULE, python_arguments=["-P", "-Xfrozen_modules=off"]),
        "display_name": DISPLAY_NAME if name == NAME else f"{DISPLAY_NAME} ({name})",
        "env": dict(env or {}),
        "metadata": {**own["metadata"], "syno_lab": syno_lab.__version__},
    }


def install(
    name: str = NAME, *, prefix: str | None = None, user: bool = False, env: dict[str, str] | None = None
) -> dict[str, Any]:
    """Write the kernelspec into a folder that Jupyter searches, and return the folder.

    Args:
        name: the kernel's name for Jupyter.
        prefix: the folder that has ``share/jupyter/kernels``; None: the prefix of this Python.
        user: whether to install for every Jupyter of this user instead.
        env: variables of the kernel's environment.

    Returns:
        ``name``, ``display_name``, ``folder``, and whether this Jupyter ``finds`` the kernel.

    Raises:
        SynoError: the name is invalid or another kernel's, or the folder cannot be written to.
    """
    manager = KernelSpecManager()
    prefix = None if user else prefix or sys.prefix
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary) / "kernel"
        shutil.copytree(_LOGOS, staged)
        (staged / "kernel.json").write_text(json.dumps(specification(name, env), indent=1), encoding="utf-8")
        _refuse_another_s(name, user, prefix)
        try:
            folder = manager.install_kernel_spec(str(staged), kernel_name=name, user=user, prefix=prefix)
        except ValueError as error:
            raise SynoError(f"--name: {' '.join(str(error).split())}") from None
        except OSError as error:
            where = error.filename or prefix or manager.user_kernel_dir
            raise SynoError(
                f"expected a folder that can be written to, found {where}: {error.strerror or error}; "
                "choose --user or another --prefix"
            ) from None
    finds = str(Path(folder).parent) in map(str, manager.kernel_dirs)
    return {"name": name.lower(), "display_name": specification(name)["display_name"], "folder": folder, "finds": finds}


def _refuse_another_s(name: str, user: bool, prefix: str | None) -> None:
    """Refuse to replace a kernelspec that is not Syno Lab's; an installation would replace it."""
    manager = KernelSpecManager()
    folder = Path(manager.user_kernel_dir) if user else Path(str(prefix)) / "share" / "jupyter" / "kernels"
    file = folder / name.lower() / "kernel.json"
    if file.is_file() and not _is_ours(KernelSpec.from_resource_dir(str(file.parent))):
        raise SynoError(f"--name: {name!r} is another kernel, in {file.parent}; choose another name")


def _is_ours(spec: KernelSpec) -> bool:
    return MODULE in spec.argv


def installed() -> list[dict[str, Any]]:
    """List the kernels of Syno Lab in this Jupyter: ``name``, ``display_name``, ``python``, ``folder``, ``env``."""
    rows = []
    manager = KernelSpecManager()
    for name, folder in sorted(manager.find_kernel_specs().items()):
        try:
            spec = manager.get_kernel_spec(name)
        except (NoSuchKernel, ValueError, OSError):
            continue  # a broken kernel of another program
        if _is_ours(spec):
            python = spec.argv[0]
            row = {"name": name, "display_name": spec.display_name, "python": python, "folder": folder, "env": spec.env}
            rows.append(row)
    return rows


def remove(name: str = NAME) -> dict[str, Any]:
    """Remove the kernelspec from the first folder in which Jupyter finds it.

    Raises:
        SynoError: there is no kernel of Syno Lab with this name, or its folder cannot be written to.
    """
    names = [row["name"] for row in installed()]
    if name.lower() not in names:
        known = f"there are {', '.join(names)}" if names else "none is installed"
        raise SynoError(f"expected a kernel of Syno Lab, found no {name!r}; {known}")
    try:
        return {"name": name.lower(), "folder": KernelSpecManager().remove_kernel_spec(name.lower())}
    except OSError as error:
        raise SynoError(f"cannot remove {error.filename or name}: {error.strerror or error}") from None


def trust(notebooks: list[str]) -> list[str]:
    """Sign notebooks for this Jupyter, so that it shows all their stored outputs; return them.

    Raises:
        SynoError: a notebook or Jupyter's store of signatures cannot be read or written to.
    """
    try:
        notary = NotebookNotary()
        for path in notebooks:
            notary.sign(nbformat.read(path, as_version=nbformat.NO_CONVERT))
    except (OSError, nbformat.ValidationError, sqlite3.Error) as error:
        raise SynoError(f"cannot sign the notebooks for Jupyter: {error}") from None
    return notebooks


def main(arguments: list[str] | None = None) -> int:
    """Run an action: print one line of JSON, or one line with the error and return 2."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name if __spec__ else __name__}", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    add = actions.add_parser("install")
    add.add_argument("--name", default=NAME)
    add.add_argument("--prefix")
    add.add_argument("--user", action="store_true")
    add.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    actions.add_parser("remove").add_argument("--name", default=NAME)
    actions.add_parser("list")
    actions.add_parser("trust").add_argument("notebooks", nargs="+")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.action == "install":
            env = dict(text.partition("=")[::2] for text in chosen.env)
            result: Any = install(chosen.name, prefix=chosen.prefix, user=chosen.user, env=env)
        elif chosen.action == "trust":
            result = trust(chosen.notebooks)
        else:
            result = remove(chosen.name) if chosen.action == "remove" else installed()
    except SynoError as error:
        print(error, file=sys.stderr)  # noqa: T201 the output for syno-lab
        return 2
    print(json.dumps(result))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
