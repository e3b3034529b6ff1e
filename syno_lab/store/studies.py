"""Copies the trials of a search to Optuna, for its samplers, plots and dashboard. The lab never reads the copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from syno_lab.errors import StoreError, SynoError

if TYPE_CHECKING:
    from .searches import SearchTrial


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raise errors of Optuna and SQLAlchemy as one line, and keep Optuna's log lines off the terminal."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    except SynoError:
        raise
    except Exception as error:  # damaged tables of Optuna raise exceptions of any class
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise StoreError(
            f"the Optuna study in the results store {path} cannot be used ({type(error).__name__}: {reason}); "
            "the results themselves are kept apart from it and are safe"
        ) from error
    finally:
        optuna.logging.set_verbosity(level)


def publish_search(url: str, name: str, trials: Iterable[SearchTrial]) -> int:
    """Add a search's missing trials to the study of this name in an Optuna storage; return their number."""
    with _errors(url.partition("@")[2] or url):  # a message must not contain the password
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
