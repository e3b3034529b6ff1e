"""``syno-lab search --validate-proxy``: measure how well short trainings of a small network rank operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno_lab.commands.output import Reporter, say, say_table, tell, write_json
from syno_lab.commands.search_options import Run, Validating
from syno_lab.errors import SynoError

if TYPE_CHECKING:
    from syno_lab.experiments import SearchSettings
    from syno_lab.experiments.validate_proxy import Validation

STAGE = "proxies"


def validate(settings: SearchSettings, validating: Validating, run: Run, place: Path) -> None:
    """Validate the proxies of the settings' backbone in the lab ``place``; print and write the result."""
    from syno_lab.experiments.validate_proxy import OPERATORS, SEEDS, validate_here, validation_folder

    if run.detach or run.address is not None:
        raise SynoError("--validate-proxy: expected a validation in this process; leave --detach and --address out")
    with Reporter() as report:
        try:
            validation = validate_here(
                settings,
                place,
                operators=validating.operators or OPERATORS,
                seeds=validating.full_seeds or SEEDS,
                report=lambda fraction, message: report(STAGE, fraction, message),
            )
        except (KeyboardInterrupt, SystemExit):
            tell(f"what is trained is kept in {validation_folder(place, settings.name)}; the same command continues it")
            raise
    _say(validation)
    write_json(validation.to_dict())


def _say(validation: Validation) -> None:
    say(
        f"{validation.backbone}: {validation.counted} operators, the full recipe on {len(validation.seeds)} seeds "
        f"({validation.full_cpu_s:.1f} CPU-s a training); {validation.drawn} drawn"
        + "".join(f", {number} {state}" for state, number in validation.states.items())
    )
    say(f"machine: {validation.machine}")
    say_table(
        [
            {
                "ranked by": row.predictor,
                "Spearman": row.spearman,
                f"{row.confidence:.0%} interval": "–" if row.low is None else f"{row.low:.2f} to {row.high:.2f}",
                "above FLOPs and parameters": "" if row.above is None else f"{row.above:.0%} of resamples",
                "used": "" if row.is_used is None else "yes" if row.is_used else "no",
            }
            for row in validation.agreements
        ]
    )
    most = validation.ceiling
    if most.most is None:
        say("ceiling: not known, because the full recipe was trained on one seed")
    else:
        say(
            f"ceiling: {most.most:.2f}; two seeds of the full recipe agree by {most.between_seeds:.2f}, their mean has "
            f"the reliability {most.reliability:.2f}"
        )
    for rung in validation.rungs:
        say(f"{rung.name}: {rung.cpu_s:.2f} CPU-s a training, {rung.seeds} an operator, ranks by {rung.measure}")
    say(f"used: {', '.join(validation.used) or 'none'}; not used: {', '.join(validation.unused) or 'none'}")
