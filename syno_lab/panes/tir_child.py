"""Prints an operator's TIR: ``python -m syno_lab.panes.tir_child FILE NAME=NUMBER …``, for a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from syno_lab.errors import SynoError
from syno_lab.processes.light import import_tvm
from syno_lab.systems import read_operator


def main(file: str, *sizes: str) -> None:
    """Print the TIR of the operator in a file for these sizes; an error ends the process with one line."""
    try:
        operator = read_operator(Path(file).read_bytes())
        import_tvm()  # without torch, which TVM would load
        named = (one.partition("=") for one in sizes)
        print(operator.to_tvm({name: int(number) for name, _, number in named}).script())  # noqa: T201
    except SynoError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
