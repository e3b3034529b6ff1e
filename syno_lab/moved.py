"""Where modules of earlier versions are now: importing an old path fails with one line that names the new one.

``syno_lab/__init__.py`` appends :class:`Moved` to ``sys.meta_path``. Python asks it last, for modules that nothing else
finds, so imports that succeed never reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Old path, new path. A pair also covers everything below the old path that has no pair of its own.
MOVED: tuple[tuple[str, str], ...] = (
    ("syno_lab.evaluate.alone", "syno_lab.processes.alone"),
    ("syno_lab.evaluate.cifar", "syno_lab.data.cifar"),
    ("syno_lab.evaluate.closing", "syno_lab.store.closing"),
    ("syno_lab.evaluate.courses", "syno_lab.store.courses"),
    ("syno_lab.evaluate.data", "syno_lab.data.datasets"),
    ("syno_lab.evaluate.demo", "syno_lab.experiments.demo"),
    ("syno_lab.evaluate.doctor", "syno_lab.doctor"),
    ("syno_lab.evaluate.figures", "syno_lab.reports.pictures"),
    ("syno_lab.evaluate.frame", "syno_lab.reports.tables"),
    ("syno_lab.evaluate.image_folder", "syno_lab.data.image_folder"),
    ("syno_lab.evaluate.jobs", "syno_lab.jobs"),
    ("syno_lab.evaluate.jobs.alive", "syno_lab.processes.alive"),
    ("syno_lab.evaluate.panes", "syno_lab.pgraphs.panes"),
    ("syno_lab.evaluate.panes.exports", "syno_lab.panes.forms"),
    ("syno_lab.evaluate.paper", "syno_lab.reports.paper"),
    ("syno_lab.evaluate.pareto", "syno_lab.store.pareto"),
    ("syno_lab.evaluate.reading", "syno_lab.reports"),
    ("syno_lab.evaluate.reading.around", "syno_lab.pgraphs.around"),
    ("syno_lab.evaluate.searching", "syno_lab.experiments"),
    ("syno_lab.evaluate.searching.known", "syno_lab.pgraphs.known"),
    ("syno_lab.evaluate.searching.traffic", "syno_lab.pgraphs.traffic"),
    ("syno_lab.evaluate.searching.traits", "syno_lab.pgraphs.traits"),
    ("syno_lab.evaluate.store", "syno_lab.store"),
    ("syno_lab.evaluate.text_data", "syno_lab.data.text"),
    ("syno_lab.evaluate.training", "syno_lab.training"),
    ("syno_lab.evaluate.trial", "syno_lab.trial"),
    ("syno_lab.evaluate.tuning", "syno_lab.tuning"),
    ("syno_lab.evaluate.tuning.apart", "syno_lab.processes.apart"),
    ("syno_lab.evaluate.tuning.board_server", "syno_lab.processes.board_server"),
    ("syno_lab.evaluate.tuning.light", "syno_lab.processes.light"),
    ("syno_lab.evaluate.tuning.own_listener", "syno_lab.processes.own_listener"),
    ("syno_lab.evaluate.tuning.process", "syno_lab.processes.process"),
    ("syno_lab.evaluate.tuning.serve", "syno_lab.processes.serve"),
    ("syno_lab.evaluate.tuning.user_code", "syno_lab.user_code"),
    ("syno_lab.evaluate", "split into the rooms of docs/architecture.md"),
    ("syno_lab.ir.versioned", "syno_lab.versioned"),
    ("syno_lab.models.derive", "syno_lab.pgraphs.derive"),
    ("syno_lab.models.derive_spec", "syno_lab.pgraphs.derive.derive_spec"),
    ("syno_lab.operators.nas_pte", "syno_lab.nas_pte.operator"),
    ("syno_lab.operators.nas_pte_module", "syno_lab.nas_pte.operator"),
    ("syno_lab.operators.nas_pte_tvm", "syno_lab.nas_pte.tvm"),
    ("syno_lab.search.space", "syno_lab.pgraphs.space"),
    ("syno_lab.search.SynthesisState", "syno_lab.pgraphs.space.SynthesisState"),
    ("syno_lab.search.synthesis_space", "syno_lab.pgraphs.space.synthesis_space"),
    ("syno_lab.tuning.user_code", "syno_lab.user_code"),
)
_NEW = dict(MOVED)
#: Packages whose parts went to different rooms. Python imports a package before its modules, so these import, as empty
#: packages, and fail at the first use: only the module or the name that is wanted tells the new place.
_SPLIT = frozenset(old for old in _NEW if any(other.startswith(f"{old}.") for other in _NEW))


def new_place(old: str) -> str | None:
    """The path today of a module, or of a name in one; None where it did not move."""
    parent, below = old, ""
    while parent and parent not in _NEW:
        parent, _, last = parent.rpartition(".")
        below = f".{last}{below}"
    if not parent:
        return None
    return _NEW[parent] if parent == "syno_lab.evaluate" else _NEW[parent] + below


def _refusal(old: str) -> ImportError:
    # ModuleNotFoundError would be swallowed by ``from package import name``, which then gives a line of its own.
    return ImportError(f"{old} is now {new_place(old)}", name=old)


class _Split(ModuleType):
    """An empty package in the place of one whose parts moved to different rooms: any name that is read is refused."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise _refusal(self.__name__ if name == "__all__" else f"{self.__name__}.{name}")


class Moved:
    """Refuses modules that moved: a finder, and the loader of the empty packages."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for a module that did not move.

        Raises:
            ImportError: it moved; the message is one line with the new path.
        """
        if not fullname.startswith("syno_lab.") or new_place(fullname) is None:
            return None
        if fullname in _SPLIT:
            # Not an importlib.abc.Loader: importing that module costs half of what `import syno_lab` does.
            return ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]
        raise _refusal(fullname)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The empty package of a path whose parts moved to different rooms."""
        return _Split(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the package is empty."""
