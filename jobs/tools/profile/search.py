"""The order in which settings are tried: a climb from what is usually best on a CPU, one setting at
a time; then optuna's ask-and-tell over all values."""

from collections.abc import Iterator, Sequence

import optuna

from jobs.tools.profile.space import TrialSettings

WORST = -1e9
"""Told for what cannot be served; optuna takes no infinities."""
_ORDER = ("instances", "batch", "threads", "delay_us")
"""Of the settings, as the climb changes them."""


class Search:
    """Proposes settings that were not tried, until `most` were; told how good each one is."""

    def __init__(self, every: Sequence[TrialSettings], most: int, seed: int, cores: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._every = every
        self._most = min(most, len(every))
        self._cores = cores
        self._values = {
            name: sorted({getattr(one, name) for one in every}) for name in TrialSettings._fields
        }
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=4)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self.scores: dict[TrialSettings, float] = {}

    def proposals(self) -> Iterator[TrialSettings]:
        """`tell` comes between two of them."""
        if self._most == len(self._every):
            yield from self._every
            return
        while len(self.scores) < self._most:
            climbed = self._climb()
            if climbed is not None:
                yield climbed
                self._add(climbed)
                continue
            trial = self._study.ask()
            settings = self._nearest(trial)
            proposed = settings._asdict() == trial.params and settings not in self.scores
            if settings in self.scores:
                settings = self._untried(settings)
            yield settings
            self._learn(trial, settings, proposed=proposed)

    def tell(self, settings: TrialSettings, score: float) -> None:
        """How good it is; larger is better."""
        self.scores[settings] = score

    def best(self, count: int) -> list[TrialSettings]:
        """The best of those tried, the very best first."""
        return sorted(self.scores, key=lambda one: self.scores[one], reverse=True)[:count]

    def _climb(self) -> TrialSettings | None:
        """One step from the best so far, to the values beside its own; None where all were tried.
        At first an instance for each core, each with one thread, batches as large as may be and no
        wait, as far as there is such a choice."""
        if not self.scores:
            instances = [one for one in self._values["instances"] if one <= self._cores]
            return self._closest(
                TrialSettings(
                    max(instances, default=self._values["instances"][0]), self._values["batch"][-1],
                    self._values["delay_us"][0], self._values["threads"][0],
                ),
                self._every,
            )  # fmt: skip
        best = self.best(1)[0]
        beside = (one for name in _ORDER for one in self._beside(best, name))
        return next((one for one in beside if one not in self.scores), None)

    def _beside(self, settings: TrialSettings, name: str) -> Iterator[TrialSettings]:
        """Down and up; a smaller value takes less of the machine."""
        values = self._values[name]
        at = values.index(getattr(settings, name))
        for other in (at - 1, at + 1):
            if 0 <= other < len(values):
                found = settings._replace(**{name: values[other]})
                if found in self._every:
                    yield found

    def _learn(self, trial: optuna.Trial, settings: TrialSettings, *, proposed: bool) -> None:
        """Tell optuna the score of the settings that were tried, also where it proposed others."""
        if proposed:
            self._study.tell(trial, max(self.scores[settings], WORST))
        else:
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            self._add(settings)

    def _add(self, settings: TrialSettings) -> None:
        tried = optuna.trial.create_trial(
            params=settings._asdict(), distributions=self._distributions(),
            value=max(self.scores[settings], WORST),
        )  # fmt: skip
        self._study.add_trial(tried)

    def _distributions(self) -> dict[str, optuna.distributions.BaseDistribution]:
        return {
            name: optuna.distributions.CategoricalDistribution(values)
            for name, values in self._values.items()
        }

    def _nearest(self, trial: optuna.Trial) -> TrialSettings:
        """As optuna suggests, of those there are."""
        asked = {name: trial.suggest_categorical(name, of) for name, of in self._values.items()}
        wanted = TrialSettings(**asked)
        return wanted if wanted in self._every else self._closest(wanted, self._every)

    def _untried(self, wanted: TrialSettings) -> TrialSettings:
        """The closest to the best so far, or to what was wanted while nothing is known."""
        left = [one for one in self._every if one not in self.scores]
        around = self.best(1)[0] if self.scores else wanted
        return self._closest(around, left)

    def _closest(self, wanted: TrialSettings, among: Sequence[TrialSettings]) -> TrialSettings:
        return min(among, key=lambda one: sum(a != b for a, b in zip(one, wanted, strict=True)))
