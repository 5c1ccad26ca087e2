"""The selected layer, its certificate, and what is refused."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.routing import RoutingStats
from raptor_acct.selection import select_layer

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
