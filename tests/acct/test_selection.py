"""The selected layer, its certificate, and what is refused."""

import itertools
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.cli.routing import select
from raptor_acct.confidence import deficit_interval
from raptor_acct.routing import RoutingStats
from raptor_acct.selection import select_layer
from raptor_acct.stability import smallest_stable_sample_of_counts

layer_maps = st.dictionaries(
    st.integers(0, 47), st.lists(st.integers(0, 300), min_size=2, max_size=16).filter(any), min_size=1, max_size=6
)


def test_largest_normalised_entropy_is_selected_under_the_real_number():
    selection = select_layer({"11": [40, 30, 20, 10], 1: [97, 1, 1, 1], 5: [60, 20, 10, 10]})
    assert selection.layer == 11
    assert [stats.layer for stats in selection.table] == [1, 5, 11]
    assert selection.row(5).counts == (60, 20, 10, 10)


def test_ties_go_to_the_lower_layer():
    """Permuted, scaled and mixed inputs of the same distribution tie exactly."""
    selection = select_layer({9: [0.5, 0.3, 0.2], 7: [2, 5, 3], 8: [50, 20, 30], 2: [9, 1, 0]})
    assert selection.layer == 7
    assert not selection.certified
    assert select_layer({5: [1 / 49] * 49, 4: [3] * 512, 6: [1, 1]}).layer == 4


def test_certified_where_the_intervals_do_not_overlap():
    selection = select_layer({1: [97, 1, 1, 1], 3: [26, 25, 25, 24]})
    assert (selection.layer, selection.certified, selection.overlapping) == (3, True, ())
    assert selection.row(3).cv_bounds_from_entropy()[1] < selection.row(1).cv_bounds_from_entropy()[0]


def test_not_certified_where_entropy_and_bias_disagree():
    """A few percent more entropy, and yet a larger CV: one big expert against a few empty ones."""
    big, empty = [0.5] + [0.5 / 7] * 7, [0.25] * 4 + [0.0] * 4
    selection = select_layer({1: empty, 3: big})
    assert RoutingStats.from_probabilities(big).cv > RoutingStats.from_probabilities(empty).cv
    assert (selection.layer, selection.certified, selection.overlapping) == (3, False, (1,))
    assert selection.smallest_cv_layer == 1


def test_single_layer_is_certified():
    assert select_layer({6: [3, 1]}).certified


def test_different_numbers_of_experts_compare_by_normalised_entropy():
    selection = select_layer({1: [1] * 63 + [200], 3: [6, 4]})
    assert selection.layer == 3
    assert selection.row(1).entropy > selection.row(3).entropy


@settings(max_examples=120, deadline=None)
@given(layer_maps)
def test_a_certificate_is_never_wrong(layers):
    selection = select_layer(layers)
    chosen = selection.row(selection.layer)
    assert all(stats.normalized_entropy <= chosen.normalized_entropy for stats in selection.table)
    assert selection.smallest_cv_layer == min(sorted(layers), key=lambda n: RoutingStats.from_counts(layers[n]).cv)
    if selection.certified:
        assert all(chosen.cv <= stats.cv for stats in selection.table)
    else:
        assert selection.overlapping


@settings(max_examples=80, deadline=None)
@given(layer_maps)
def test_every_pair_that_entropy_decides_is_in_the_order_of_the_cvs(layers):
    selection = select_layer(layers)
    ranked = sorted(selection.table, key=lambda stats: -stats.normalized_entropy)
    for first, second in itertools.combinations(ranked, 2):
        pair = tuple(sorted((first.layer, second.layer)))
        decided = first.cv_bounds_from_entropy()[1] <= second.cv_bounds_from_entropy()[0]
        assert decided == (pair not in selection.undecided_pairs)
        assert not decided or first.cv <= second.cv
    assert selection.order_certified == (not selection.undecided_pairs)
    beside = {layer for pair in selection.undecided_pairs if selection.layer in pair for layer in pair}
    assert beside - {selection.layer} == set(selection.overlapping)


def test_the_selection_can_be_certain_where_the_order_below_it_is_not():
    selection = select_layer({1: [60, 20, 10, 10], 3: [26, 25, 25, 24], 5: [55, 35, 5, 5]})
    assert (selection.certified, selection.order_certified, selection.undecided_pairs) == (True, False, ((1, 5),))


@settings(max_examples=60, deadline=None)
@given(layer_maps)
def test_confidence_is_the_level_at_which_the_intervals_just_part(layers):
    selection = select_layer(layers)
    assert 0 <= selection.confidence < 1

    def parted(error):
        ends = {}
        for one in selection.table:
            known = (one.entropy_deficit, one.cv, one.num_records, one.num_experts)
            low, high = deficit_interval(*known, error=error / len(layers))
            ends[one.layer] = (low / math.log(one.num_experts), high / math.log(one.num_experts))
        return all(ends[selection.layer][1] <= low for layer, (low, _) in ends.items() if layer != selection.layer)

    error = 1 - selection.confidence
    assert selection.confidence == 0 or parted(error * (1 + 1e-9))
    assert error < 1e-12 or not parted(error * 0.998)


def test_a_wrong_selection_is_hardly_ever_confident():
    """Two layers a little apart: at a level of 0.8, at most a share of 0.2 of the samples may claim the wrong one."""
    truth = {1: [0.4, 0.2, 0.2, 0.2], 3: [0.45, 0.25, 0.2, 0.1]}
    rng = np.random.default_rng(0)
    claims = []
    for records in (50, 40_000):
        draws = [select_layer({k: rng.multinomial(records, p) for k, p in truth.items()}) for _ in range(200)]
        assert sum(one.layer == 3 and one.confidence >= 0.8 for one in draws) <= 200 * 0.2
        claims.append(sum(one.layer == 1 and one.confidence >= 0.8 for one in draws))
    assert claims[1] > 150  # and with enough records the right one is claimed


def test_confidence_grows_with_the_records_and_needs_counts():
    shares = [0.3, 0.28, 0.22, 0.2]
    levels = [
        select_layer({1: [7 * k, k, k, k], 3: [round(10 * k * share) for share in shares]}).confidence
        for k in (1, 10, 20, 40, 10**6)
    ]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (0, pytest.approx(1, abs=1e-14))
    assert select_layer({1: [3, 1], 3: [0.5, 0.5]}).confidence is None


def test_the_command_says_how_sure_and_keeps_its_json():
    def run(counts, *args):
        text = json.dumps({"layers": {str(layer): {"counts": c} for layer, c in counts.items()}})
        return CliRunner().invoke(select, ["-", *args], input=text).output

    clear, close = {1: [700, 100, 100, 100], 3: [280, 260, 240, 220]}, {1: [28, 26, 24, 22], 3: [29, 26, 24, 21]}
    assert "sampling: the selection holds at confidence 0.999999 for the population" in run(clear)  # rounded down
    assert "sampling: the selection does not hold at any confidence" in run(close)
    assert "open for 0 of 1 pairs" in run(clear)
    smallest = smallest_stable_sample_of_counts(clear, level=0.999).smallest
    assert f"stable: from {smallest} records on, fresh samples select layer 3" in run(clear, "--level", "0.999")
    assert "not stable: even of 100 records, fresh samples select layer 1" in run(close, "--level", "0.9")
    plain, added = json.loads(run(clear, "--json")), json.loads(run(clear, "--json", "--level", "0.9"))
    assert added.pop("stability") == smallest_stable_sample_of_counts(clear, level=0.9).to_dict()
    assert added == plain


def test_paper_selects_block_7_for_mnli():
    """A distribution with each printed H/log E of Table 7 leads to the printed choice."""
    printed = {1: 0.307, 3: 0.674, 5: 0.641, 7: 0.682, 9: 0.643, 11: 0.646}
    layers = {}
    for block, normalized in printed.items():
        tops = np.linspace(1 / 8, 1, 20001)
        rest = np.maximum((1 - tops) / 7, 1e-300)
        entropy = -(tops * np.log(tops) + 7 * rest * np.log(rest)) / math.log(8)
        top = tops[np.abs(entropy - normalized).argmin()]
        layers[block] = [top] + [(1 - top) / 7] * 7
    assert select_layer(layers).layer == 7


def test_to_dict_is_json_with_a_row_a_layer():
    selection = select_layer({1: [97, 1, 1, 1], 3: [0.3, 0.3, 0.2, 0.2]})
    data = json.loads(json.dumps(selection.to_dict(), allow_nan=False))
    assert (data["layer"], data["certified"], data["overlapping"], data["smallest_cv_layer"]) == (3, True, [], 3)
    assert [RoutingStats.from_dict(row) for row in data["table"]] == list(selection.table)


def test_b34_asking_for_a_layer_without_a_router_is_an_error():
    selection = select_layer({1: [3, 1], 2: [2, 2]})
    with pytest.raises(ValueError, match=r"expected layer to be one of 1, 2, got layer=0; a dense layer has no router"):
        selection.row(0)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({}, "expected stats_by_layer to have at least one layer, got none"),
        ({1: [1, 2], "1": [1, 2]}, "expected every layer once in stats_by_layer, got layer '1' twice"),
        ([[1, 2]], "expected stats_by_layer to be a mapping"),
        ({0: None, 1: [1, 2]}, "got None; a dense layer has no router"),
        ({1: [3]}, "at least 2 experts"),
        ({1: [0, 0]}, "expected counts of at least one record"),
    ],
)
def test_bad_input(layers, message):
    with pytest.raises(ValueError, match=message):
        select_layer(layers)
