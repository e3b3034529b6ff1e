"""The kernel "Syno Lab": IPython's own, with ``%load_ext syno_lab`` done and its lab attached.

Jobs live outside this process. If the kernel is interrupted, restarted or killed they continue, and the next kernel in
the same folder finds them. ``syno-lab kernel install`` tells Jupyter of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from traitlets import List, Unicode

import syno_lab

_INSTALLED = ("site-packages", "dist-packages")


class SynoKernel(IPythonKernel):
    """IPython's kernel under our name; see :class:`SynoKernelApp` for what is loaded."""

    implementation = "syno-lab"
    implementation_version = syno_lab.__version__


class SynoKernelApp(IPKernelApp):
    """Starts the kernel. An extension that fails to load is reported, and the kernel runs without it."""

    name = Unicode("syno-lab-kernel")
    default_extensions = List(Unicode(), ["storemagic", "syno_lab"]).tag(config=False)

    def init_path(self) -> None:
        """Let the notebook import what lies beside it, after the standard library, as IPython's own kernel does.

        IPython leaves it out here, because of the option -P of our kernelspec.
        """
        if "" not in sys.path and not self.ignore_cwd:
            installed = (at for at, path in enumerate(sys.path) if Path(path).name in _INSTALLED)
            sys.path.insert(next(installed, len(sys.path)), "")

    def init_extensions(self) -> None:
        """Load ours, and let a notebook load it once more: notebooks for any kernel say ``%load_ext syno_lab``.

        IPython would answer that it is loaded already.
        """
        super().init_extensions()
        if self.shell is not None:
            self.shell.extension_manager.loaded.discard("syno_lab")


if __name__ == "__main__":
    SynoKernelApp.launch_instance(kernel_class=SynoKernel)
