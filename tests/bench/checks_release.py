"""Checks of what one record can do to a release: clipping, owners, denominators, and which weights train at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from .scenarios import NOT_FINITE, REMOVED, few
from .setting import NUM_RECORDS, STREAMS
from .system import Sum, System, flat

TOLERANCE = 1e-9  # of the clip norm, in float64


def _assert_sums(system: System, sums: list[Sum], without: int | None = None) -> None:
    for k, found in enumerate(sums):
        clipped = system.reference.clipped[found.stream]
        for name, tensor in found.tensors.items():
            expected = torch.zeros_like(tensor)
            for i in found.seen:
                expected += clipped[i][name] if i != without else 0
            error = float((tensor - expected).abs().max()) / system.reference.clip_norms[found.stream]
            assert error <= TOLERANCE, f"release {k}: {name} is off by {error:.1e} clip norms"


def sums_are_exact(system: System) -> None:
    """A release without noise is the sum of the sampled records' clipped gradients, by autograd, over B or B/E."""
    for scenario in ("busy", "few", "few together"):
        _assert_sums(system, system.sums(scenario))


def not_finite_records_count_nothing(system: System) -> None:
    """A record whose loss is not a number adds nothing."""
    _assert_sums(system, system.sums("few with one not finite"), without=few(system.family)[NOT_FINITE])


def sensitivity_is_the_clip_norm(system: System) -> None:
    """Without one record, all else the same, each stream's sum moves by at most its clip norm; some by all of it."""
    whole = system.sums("few together")
    for stream, found in zip(STREAMS, whole, strict=True):
        bound, moved = system.reference.clip_norms[stream], []
        for place in REMOVED:
            without = system.sums(f"few together without {place}")[STREAMS.index(stream)]
            moved.append(float(np.linalg.norm(flat(found.tensors) - flat(without.tensors))))
        moved += [float(np.linalg.norm(change)) for change in _changes_without_the_last(system, stream)]
        assert max(moved) <= bound * (1 + TOLERANCE), f"{stream}: a record moves the sum by {max(moved) / bound} C"
        assert max(moved) >= bound * (1 - TOLERANCE), f"{stream}: no record is clipped, so nothing was tested"


def _changes_without_the_last(system: System, stream: str) -> Iterator[np.ndarray]:
    """How the releases of a Poisson run change without its last record: the others' coins stay the same."""
    last, k = NUM_RECORDS - 1, STREAMS.index(stream)
    sums = zip(*(system.sums(scenario)[k::2] for scenario in ("busy", "busy without the last")), strict=True)
    for whole, without in sums:
        assert sorted(set(whole.seen) - {last}) == sorted(without.seen), "a record's coins depend on another record"
        change = flat(whole.tensors) - flat(without.tensors)
        assert last in whole.seen or not change.any(), f"{stream}: a record that was not sampled changes the release"
        yield change


def nothing_leaks_to_non_owners(system: System) -> None:
    """Without one record, every expert but its owner releases the same bits."""
    whole = system.sums("few")[1]
    for place in REMOVED:
        owner = system.reference.owners[few(system.family)[place]]
        without = system.sums(f"few without {place}")[1]
        moved = {
            system.reference.expert_of[name]
            for name, tensor in whole.tensors.items()
            if not torch.equal(tensor, without.tensors[name])
        }
        assert moved == {owner}, f"without a record of expert {owner}, the sums of experts {sorted(moved)} changed"


def silent_records_change_no_byte(system: System) -> None:
    """A record with a gradient of zero leaves no trace: no denominator, no noise and no charge depends on it."""
    pair = [system.recording(f"few {what} silent record") for what in ("with a", "without the")]
    assert pair[0].ledger == pair[1].ledger, "the ledger depends on the number of records"
    for k, (a, b) in enumerate(zip(pair[0].releases, pair[1].releases, strict=True)):
        assert set(a.seen) > set(b.seen), "the silent record was not sampled, so nothing was tested"
        for name in a.gradient:
            assert torch.equal(a.gradient[name], b.gradient[name]), f"release {k}: {name} depends on a silent record"


def denominators_are_public(system: System) -> None:
    """One added to a sum adds 1/B or 1/(B/E) to the release, with B from the public number of records."""
    for pair in (("few", "few with ones"), ("few without 0", "few without 0 with ones")):
        for without, with_ones in zip(*map(system.sums, pair), strict=True):
            added = flat(with_ones.tensors) - flat(without.tensors)
            assert np.allclose(added, 1, rtol=0, atol=TOLERANCE), f"{without.stream}: denominator off by {added[0]}"


def only_the_roles_train(system: System) -> None:
    """Each stream releases its own adapters (and head) alone, and nothing else in the model moves by a bit."""
    system.sums("training")
    roles = set.union(*(system.reference.names(stream) for stream in STREAMS))
    changed = system.recording("training").changed
    assert changed == roles, f"changed and in no role: {changed - roles}; in a role and not changed: {roles - changed}"
