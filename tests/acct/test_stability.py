"""How many records it takes: the curve's band, the smallest stable sample, seeds, refusals."""

import json
import tracemalloc

import numpy as np
import pytest

from raptor_acct.routing import RoutingStats
from raptor_acct.selection import select_layer
from raptor_acct.stability import entropy_curve, smallest_stable_sample, smallest_stable_sample_of_counts

CLEAR = {1: [97, 1, 1, 1], 3: [25, 25, 25, 25]}


def owners(counts, seed=0):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


def test_few_records_show_too_little_entropy_and_many_show_it():
    curve = entropy_curve([500, 300, 150, 50], [5, 50, 500, 5000], resamples=300)
    assert list(curve.mean) == sorted(curve.mean)
    assert all(low <= mean <= high for low, mean, high in zip(curve.low, curve.mean, curve.high, strict=True))
    widths = [high - low for low, high in zip(curve.low, curve.high, strict=True)]
    assert widths == sorted(widths, reverse=True)
    assert curve.mean[-1] == pytest.approx(curve.entropy, abs=2e-3)
    assert curve.entropy == RoutingStats.from_counts([500, 300, 150, 50]).entropy


def test_bands_hold_their_share_of_other_samples():
    counts, size = [50, 30, 15, 5], 40
    curve = entropy_curve(counts, [size], level=0.8, resamples=4000)
    draws = np.random.default_rng(9).multinomial(size, np.array(counts) / 100, size=2000)
    inside = np.mean([curve.low[0] <= RoutingStats.from_counts(draw).entropy <= curve.high[0] for draw in draws])
    assert 0.76 <= inside <= 0.88  # entropies are few and tied: the band may hold a little more


def test_a_clear_choice_takes_few_records_and_a_close_one_more():
    clear = smallest_stable_sample_of_counts(CLEAR, sizes=[10, 100, 1000], resamples=200)
    close = smallest_stable_sample_of_counts({1: [30, 25, 25, 20], 3: [27, 25, 25, 23]}, sizes=[10, 100, 300])
    assert (clear.layer, clear.smallest) == (3, 10)
    assert (close.layer, close.smallest) == (3, None)
    assert close.agreement[0] < close.agreement[-1] < 0.95


def test_layers_that_always_agree_are_drawn_together():
    """The same owners in both layers: a tie in every sample, which goes to the lower layer."""
    one = owners([40, 30, 20, 10])
    tied = smallest_stable_sample({5: one, 2: one}, 4, sizes=[7, 70], resamples=50)
    assert (tied.layer, tied.smallest, tied.agreement) == (2, 7, (1.0, 1.0))


def test_a_seed_repeats_the_draws():
    rows = [owners([60, 20, 10, 10], 1), owners([40, 25, 20, 15], 2)]
    first, again, other = (
        smallest_stable_sample(rows, 4, layers=[1, 3], sizes=[15, 60], resamples=100, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first.agreement != other.agreement


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": [10, 10]}, "sizes"),
        ({"sizes": [0]}, "sizes"),
        ({"sizes": []}, "sizes"),
        ({"level": 1.0}, "level"),
        ({"resamples": 0}, "resamples"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        smallest_stable_sample_of_counts(CLEAR, **arguments)
    with pytest.raises(ValueError, match=message):
        entropy_curve(CLEAR[1], **arguments)


def test_shares_alone_are_refused():
    with pytest.raises(ValueError, match="counts"):
        entropy_curve(RoutingStats.from_probabilities([0.5, 0.5]))
    with pytest.raises(ValueError, match="counts"):
        smallest_stable_sample_of_counts({1: [3, 1], 3: [0.5, 0.5]})


def test_the_joint_draw_and_independent_layers_agree_where_owners_are_unrelated():
    counts = {1: [120, 70, 60, 50], 3: [90, 80, 70, 60]}
    rows = {layer: owners(count, seed) for seed, (layer, count) in enumerate(counts.items())}
    sizes = [20, 60, 200]
    joint = smallest_stable_sample(rows, 4, sizes=sizes, resamples=2000)
    apart = smallest_stable_sample_of_counts(counts, sizes=sizes, resamples=2000)
    assert joint.layer == apart.layer == 3
    assert joint.agreement == pytest.approx(apart.agreement, abs=0.05)


def test_a_sample_counts_its_own_records():
    """Slow twin: the first n of one row of drawn records, counted and compared record by record."""
    rows = {1: owners([60, 20, 10, 10], 1), 3: owners([40, 25, 20, 15], 2)}
    sizes, drawn = [3, 15, 60], 50
    found = smallest_stable_sample(rows, 4, sizes=sizes, resamples=drawn, seed=5)
    rng, agreed = np.random.default_rng(5), np.zeros(3)
    for _ in range(drawn):
        records = rng.integers(100, size=60)
        for i, size in enumerate(sizes):
            stats = {n: RoutingStats.from_owners(row[records[:size]], 4) for n, row in rows.items()}
            agreed[i] += select_layer(stats).layer == 3
    assert found.agreement == pytest.approx(agreed / drawn)


def test_default_sizes_end_at_all_records():
    for records in (1, 4, 10, 700):
        sizes = entropy_curve([records, 0], resamples=1).sizes
        assert list(sizes) == sorted(set(sizes))
        assert sizes[-1] == records


def test_to_dict_is_json():
    stability = smallest_stable_sample_of_counts(CLEAR, resamples=5)
    curve = entropy_curve(CLEAR[1], resamples=5)
    for result in (stability, curve):
        data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert tuple(data["sizes"]) == result.sizes


def test_a_large_sample_is_counted_in_blocks():
    """4 million records of one draw take the memory of one block of them."""
    tracemalloc.start()
    found = smallest_stable_sample({1: [0, 0, 0, 1], 3: [0, 1, 2, 3]}, 4, sizes=[4_000_000], resamples=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.layer, found.agreement) == (3, (1.0,))
    assert peak < 40 * 2**20  # all at once: 32 MB of draws and 64 MB of owners
