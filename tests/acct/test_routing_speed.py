"""Statistics, selection and bounds of many layers at once: far inside what a large public corpus would need."""

import time
import tracemalloc

import numpy as np

from raptor_acct.bias import bias_bound
from raptor_acct.routing import stats_by_layer
from raptor_acct.selection import select_layer

LAYERS, EXPERTS, RECORDS = 64, 128, 20_000


def test_64_layers_of_20_000_records():
    rng = np.random.default_rng(0)
    owners = np.stack([rng.choice(EXPERTS, RECORDS, p=rng.dirichlet(np.full(EXPERTS, 2.0))) for _ in range(LAYERS)])
    bias_bound(stats_by_layer(owners[:2], EXPERTS, layers=[0, 1]))  # what is imported late is not part of the time
    tracemalloc.start()
    started = time.perf_counter()
    stats = stats_by_layer(owners, EXPERTS, layers=range(LAYERS))
    selection, bounds = select_layer(stats), bias_bound(stats)
    seconds = time.perf_counter() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(bounds) == len(selection.table) == LAYERS
    assert seconds < 10  # under tracemalloc, on a busy machine; 0.1 without either
    assert peak < 5 * owners[0].nbytes + 16 * 2**20  # a few layers' worth: never a copy of all owners
