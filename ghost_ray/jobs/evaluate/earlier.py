"""What an evaluation can reuse from earlier ones of the same stores: fitted methods and scores of the knowns."""

from __future__ import annotations

from dataclasses import dataclass

from ghost_ray.config import EvaluateConfig
from ghost_ray.files import join, name_of
from ghost_ray.jobs.evaluate.evaluate_plan import KNOWN, Plan
from ghost_ray.jobs.evaluate.fitted_methods import Fitted, Restored, is_bank
from ghost_ray.jobs.evaluate.kept_fits import KeptFits, made_from
from ghost_ray.jobs.evaluate.known_scores import KnownScores
from ghost_ray.jobs.evaluate.scoring import Scored, SetScores


@dataclass(frozen=True)
class Earlier:
    """What one evaluation can reuse, and where it keeps its own results; made by `look_back`."""

    plan: Plan
    out: str  # the evaluation's own folder
    fits: KeptFits
    known: KnownScores
    restored: Restored

    def fitted_again(self) -> list[str]:
        """The methods that read the training rows again, even if an earlier evaluation has fitted them."""
        return [
            name
            for name, scorer in self.plan.scorers.items()
            if (scorer.passes or scorer.by_class) and (name not in self.restored or is_bank(scorer))
        ]

    def keep_fits(self, fitted: Fitted) -> None:
        """Keep new fits for later evaluations."""
        self.fits.save(fitted, self.restored)

    def known_scores(self, folder: str) -> dict[str, Scored]:
        """The known set's scores that can be reused; their files are copied into ``folder``."""
        return self.known.take(self._ours(), folder)

    def keep_known_scores(self, scored: SetScores, taken: dict[str, Scored], folder: str) -> None:
        """Record the new scores in ``folder`` for later evaluations; those that were ``taken`` are recorded already."""
        notes = {name: scored.notes.get(name, ()) for name in self._ours() if name not in taken}
        self.known.add(name_of(self.out), folder, notes)

    def _ours(self) -> list[str]:
        """Methods of this package: their code is the same as long as its result version is."""
        return [name for name, scorer in self.plan.scorers.items() if scorer.kept_classes() is not None]


def look_back(config: EvaluateConfig, plan: Plan, kept: str, evaluations: str) -> Earlier:
    """Restore the kept fits of the plan's methods, and remove those that no evaluation can use any more.

    Parameters
    ----------
    kept : str
        A folder for fits and for a record of scores; evaluations of one network share it.
    evaluations : str
        The folder that holds these evaluations, and ``config.out`` beside them.
    """
    fits = KeptFits(join(kept, "fits"), made_from(config, plan))
    fits.remove_others()
    known = KnownScores.of(join(kept, "known.json"), evaluations, fits.made_from, plan.sets[KNOWN].store)
    return Earlier(plan, config.out, fits, known, fits.restore(plan.scorers))
