"""Labels of windows are unpacked once, and take no more memory than they may."""

from control.drift.label_cache import LabelCache
from control.drift.packing import pack_drift
from control.drift.points import CategoryCounts, FeatureCounts, VersionDrift


def packed(number: int, classes: int = 10) -> bytes:
    labels = CategoryCounts({f"class {one}": number + 1 for one in range(classes)})
    features = (
        FeatureCounts("x", "input", CategoryCounts({"a": 1})),
        FeatureCounts("scores", "label", labels),
    )
    return pack_drift(VersionDrift("digits", 1, 10, features))


def test_labels_alone_are_kept_and_the_second_time_they_are_the_same() -> None:
    cache = LabelCache()
    found = cache.labels_in(packed(1))
    assert [one.role for one in found.features] == ["label"]
    assert cache.labels_in(packed(1)) is found


def test_no_more_is_kept_than_the_limit_and_what_was_read_last_stays() -> None:
    cache = LabelCache(20_000)
    for number in range(100):
        cache.labels_in(packed(number))
        assert cache.size_bytes <= 20_000
    last = cache.labels_in(packed(99))
    assert cache.labels_in(packed(99)) is last


def test_a_window_that_is_larger_than_the_limit_is_read_and_not_kept() -> None:
    cache = LabelCache(1_000)
    assert cache.labels_in(packed(1, 100)).features
    assert cache.size_bytes == 0
