"""The Jupyter kernel "Syno Lab": IPython's kernel with the extension ``syno_lab`` loaded and its lab attached.

Jobs run outside this process. If the kernel is interrupted, restarted or killed, jobs continue, and the next kernel in
the same folder finds them. ``syno-lab kernel install`` registers the kernel with Jupyter.
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
    """IPython's kernel under the lab's name; :class:`SynoKernelApp` loads the extension."""

    implementation = "syno-lab"
    implementation_version = syno_lab.__version__


class SynoKernelApp(IPKernelApp):
    """Start the kernel. If an extension fails to load, the kernel reports this and runs without it."""

    name = Unicode("syno-lab-kernel")
    default_extensions = List(Unicode(), ["storemagic", "syno_lab"]).tag(config=False)

    def init_path(self) -> None:
        """Let the notebook import files beside it, after the standard library, as in IPython's own kernel.

        The option -P of the kernelspec stops IPython from doing this.
        """
        if "" not in sys.path and not self.ignore_cwd:
            installed = (at for at, path in enumerate(sys.path) if Path(path).name in _INSTALLED)
            sys.path.insert(next(installed, len(sys.path)), "")

    def init_extensions(self) -> None:
        """Load the extension, and allow ``%load_ext syno_lab`` again: notebooks for all kernels contain it.

        Otherwise IPython would print that the extension is already loaded.
        """
        super().init_extensions()
        if self.shell is not None:
            self.shell.extension_manager.loaded.discard("syno_lab")


if __name__ == "__main__":
    SynoKernelApp.launch_instance(kernel_class=SynoKernel)
