"""The order in which settings are tried: optuna's ask-and-tell over the values to choose among."""

from collections.abc import Iterator, Sequence

import optuna

from jobs.tools.profile.space import TrialSettings

WORST = -1e9
"""Told for what cannot be served; optuna takes no infinities."""


class Search:
    """Proposes settings that were not tried, until `most` were; told how good each one is."""

    def __init__(self, every: Sequence[TrialSettings], most: int, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._every = every
        self._most = min(most, len(every))
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self.scores: dict[TrialSettings, float] = {}

    def proposals(self) -> Iterator[TrialSettings]:
        """`tell` comes between two of them."""
        if self._most == len(self._every):
            yield from self._every
            return
        for first in self._starts():
            self._study.enqueue_trial(first._asdict(), skip_if_exists=True)
        while len(self.scores) < self._most:
            trial = self._study.ask()
            settings = self._nearest(trial)
            proposed = settings._asdict() == trial.params and settings not in self.scores
            if settings in self.scores:
                settings = self._untried(settings)
            yield settings
            self._learn(trial, settings, proposed=proposed)

    def _learn(self, trial: optuna.Trial, settings: TrialSettings, *, proposed: bool) -> None:
        """Tell optuna the score of the settings that were tried, also where it proposed others."""
        score = max(self.scores[settings], WORST)
        if proposed:
            self._study.tell(trial, score)
            return
        self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        tried = optuna.trial.create_trial(
            params=settings._asdict(), distributions=trial.distributions, value=score
        )
        self._study.add_trial(tried)

    def tell(self, settings: TrialSettings, score: float) -> None:
        """How good it is; larger is better."""
        self.scores[settings] = score

    def best(self, count: int) -> list[TrialSettings]:
        """The best of those tried, the very best first."""
        return sorted(self.scores, key=lambda one: self.scores[one], reverse=True)[:count]

    def _starts(self) -> list[TrialSettings]:
        """Corners that tell most: few and many instances, small and large batches, no delay."""
        quick = [one for one in self._every if one.delay_us == min(s.delay_us for s in self._every)]
        single = [one for one in quick if one.threads == min(s.threads for s in quick)]
        by_batch = sorted(single, key=lambda one: (one.batch, one.instances))
        return [by_batch[0], by_batch[-1], by_batch[len(by_batch) // 2]]

    def _nearest(self, trial: optuna.Trial) -> TrialSettings:
        """As optuna suggests, of those there are."""
        names = TrialSettings._fields
        values = {name: sorted({getattr(one, name) for one in self._every}) for name in names}
        asked = {name: trial.suggest_categorical(name, values[name]) for name in names}
        wanted = TrialSettings(**asked)
        return wanted if wanted in self._every else self._closest(wanted, self._every)

    def _untried(self, wanted: TrialSettings) -> TrialSettings:
        """The closest to the best so far, or to what was wanted while nothing is known."""
        left = [one for one in self._every if one not in self.scores]
        around = self.best(1)[0] if self.scores else wanted
        return self._closest(around, left)

    def _closest(self, wanted: TrialSettings, among: Sequence[TrialSettings]) -> TrialSettings:
        return min(among, key=lambda one: sum(a != b for a, b in zip(one, wanted, strict=True)))
