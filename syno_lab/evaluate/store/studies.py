"""The run's finished evaluations as trials of an Optuna study, in the same file.

Our tables are the truth; the study is what Optuna's samplers, plots and its dashboard understand. A trial is added
once an operator has both numbers and is never changed (Optuna refuses to), so an operator that is trained or tuned
again with another result gets one more trial, as another observation of the same point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from syno_lab.errors import StoreError, SynoError

from .database import connect_writer

if TYPE_CHECKING:
    import optuna

    from .searches import SearchTrial


class Evaluation(NamedTuple):
    """What a trial is made of; `accuracy` is maximised, `latency_ms` minimised."""

    fingerprint: str
    target: str
    accuracy: float
    latency_ms: float
    label: str
    flops: int
    params: int
    baseline: bool


def _key(fingerprint: str, target: str, values: Iterable[float]) -> tuple[object, ...]:
    return fingerprint, target, *values


@contextmanager
def _told(path: Path | str) -> Iterator[None]:
    """Turn what Optuna and SQLAlchemy raise into one line, and keep Optuna's log lines off the terminal."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    except SynoError:
        raise
    except Exception as error:  # damaged tables of Optuna end in errors of any class
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise StoreError(
            f"the Optuna study in the results store {path} cannot be used ({type(error).__name__}: {reason}); "
            "the results themselves are kept apart from it and are safe"
        ) from error
    finally:
        optuna.logging.set_verbosity(level)


class Studies:
    """Optuna's view of a store file. Whoever calls holds the database's `exclusive` lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._storage: optuna.storages.RDBStorage | None = None
        self._known: dict[str, optuna.Study] = {}  # a study remembers its finished trials; a new one reads them all

    def study(self, name: str) -> optuna.Study:
        """Return the study of this name, made if missing, with its directions set."""
        if name in self._known:
            return self._known[name]
        with _told(self._path):
            import optuna
            from sqlalchemy import URL
            from sqlalchemy.pool import NullPool

            if self._storage is None:
                self._storage = optuna.storages.RDBStorage(
                    URL.create("sqlite", database=str(self._path)).render_as_string(),
                    engine_kwargs={"creator": lambda: connect_writer(self._path), "poolclass": NullPool},
                )
            study = optuna.create_study(
                storage=self._storage, study_name=name, directions=["maximize", "minimize"], load_if_exists=True
            )
            if "objectives" not in study.user_attrs:
                study.set_user_attr("objectives", ["accuracy", "latency_ms"])
            self._known[name] = study
            return study

    def publish(self, name: str, evaluations: Iterable[Evaluation]) -> None:
        """Add a trial for each evaluation that the study does not have yet."""
        import optuna

        study = self.study(name)
        with _told(self._path):
            attributes = ((trial.user_attrs, trial.values) for trial in study.get_trials(deepcopy=False))
            known = {_key(a.get("fingerprint", ""), a.get("target", ""), values or ()) for a, values in attributes}
            for evaluation in evaluations:
                values = (evaluation.accuracy, evaluation.latency_ms)
                if _key(evaluation.fingerprint, evaluation.target, values) in known:
                    continue
                rest = {k: v for k, v in evaluation._asdict().items() if k not in ("accuracy", "latency_ms")}
                study.add_trial(optuna.trial.create_trial(values=list(values), user_attrs=rest))

    def close(self) -> None:
        """Let go of the storage."""
        storage, self._storage = self._storage, None
        self._known.clear()
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def publish_search(url: str, name: str, trials: Iterable[SearchTrial]) -> int:
    """Add to the study of this name in any Optuna storage what it lacks of a search's trials; return how many."""
    with _told(url.partition("@")[2] or url):  # no password in a message
        import optuna
        from optuna.trial import TrialState, create_trial

        storage = optuna.storages.RDBStorage(url)
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, directions=["maximize", "minimize"], load_if_exists=True
            )
            if "objectives" not in study.user_attrs:
                study.set_user_attr("objectives", ["accuracy", "flops"])
            known = {trial.user_attrs.get("number") for trial in study.get_trials(deepcopy=False)}
            fresh = [trial for trial in trials if trial.number not in known]
            study.add_trials(
                create_trial(
                    state=TrialState.FAIL if trial.accuracy is None else TrialState.COMPLETE,
                    values=None if trial.accuracy is None else [trial.accuracy, float(trial.flops)],
                    user_attrs={
                        "number": trial.number,
                        "fingerprint": trial.fingerprint,
                        "state": trial.state,
                        "reason": trial.reason,
                        "flops": trial.flops,
                        "params": trial.params,
                        "wall_s": trial.wall_s,
                    },
                )
                for trial in fresh
            )
            return len(fresh)
        finally:
            storage.remove_session()
            storage.engine.dispose()
