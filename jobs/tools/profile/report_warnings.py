"""What a profile's report says of how far its numbers go. Pure."""

from control.jobs.specs.profile import ProfileSpec
from jobs.tools.profile.clients import WARM_S
from jobs.tools.profile.replay import arrivals_of
from jobs.tools.profile.sampled import MOST_BYTES, TrialRequests

_SHARED = (
    "clients and server shared this machine's cores, and other work on it shows in every number: "
    "compare settings with each other, not with another machine"
)
_THINNED = (
    "samples are 200 requests a second of a model at most, the percentage that sampling was "
    "switched on with, and only those that were answered: where the model gets more, set 'speed' "
    "higher"
)


def warnings_of(spec: ProfileSpec, sent: TrialRequests, *, has_data: bool) -> tuple[str, ...]:
    """What shared the machine, what the requests were, and which of the sampled ones."""
    if not has_data:
        return _SHARED, "requests were made up, not read from a data file"
    found = [_SHARED, *_of_values(sent), *_of_left_out(sent)]
    if spec.arrivals == "sampled":
        found.append(_of_arrivals(spec, sent))
    return tuple(found)


def _of_values(sent: TrialRequests) -> list[str]:
    found = []
    if sent.drawn:
        found.append(
            f"{sent.drawn} of {len(sent.requests)} sampled requests were sent with values drawn "
            "from their statistics: samples keep the first 64 values of a tensor, and these only "
            "where sampling was switched on with values"
        )
    if sent.zeros:
        found.append(
            f"{sent.zeros} of {len(sent.requests)} sampled requests were sent with zeros for an "
            "input: neither its values nor statistics of it were kept, as of fewer than 8 values "
            "without values"
        )
    return found


def _of_left_out(sent: TrialRequests) -> list[str]:
    found = []
    if sent.unfit:
        found.append(
            f"{sent.unfit} sampled requests were left out: their inputs have other names, types or "
            "shapes than this version takes"
        )
    if sent.too_large:
        found.append(
            f"the oldest {sent.too_large} sampled requests were left out: together they are larger "
            f"than {MOST_BYTES >> 20} MiB"
        )
    return found


def _of_arrivals(spec: ProfileSpec, sent: TrialRequests) -> str:
    span = sent.arrivals_s[-1] - sent.arrivals_s[0]
    came = f"{len(sent.requests)} sampled requests came in {span:.1f} s"
    if span:
        came += f", {(len(sent.requests) - 1) / span:.1f} a second"
    replayed = {
        one.request for one in arrivals_of(sent.arrivals_s, spec.speed, WARM_S + spec.seconds)
    }
    part = "all of them were sent again and again"
    if len(replayed) < len(sent.requests):
        part = f"the newest {len(replayed)} of them were sent again, from the same {_window(spec)}"
    return f"{came}; {part}, {spec.speed:g} times as fast; {_THINNED}"


def _window(spec: ProfileSpec) -> str:
    return f"{(WARM_S + spec.seconds) * spec.speed:.1f} s"
