"""The ledger: what is on disk adds up to what was spent, and damage is seen."""

import json
import math
import time
from pathlib import Path

import pytest

from raptor_acct import RolePlan, SubsampledGaussian
from raptor_acct.ledger import Ledger, LedgerDamaged, replay, streams
from raptor_acct.ledger_file import FORMAT, LedgerSegment, checked_release, digest, parse_ledger


def charge(ledger: Ledger, stream: str = "shared", sigma: float = 1.0) -> None:
    ledger.append(stream=stream, noise_multiplier=sigma, sampling_probability=0.01, clip_norm=1.0)


def filled(path: Path, cycles: int = 5) -> Path:
    ledger = Ledger(path)
    for _ in range(cycles):
        charge(ledger, "shared", 1.0)
        charge(ledger, "expert", 2.0)
    return path


def test_a_replay_gives_the_plans_epsilon(tmp_path: Path) -> None:
    plan = RolePlan(
        shared=SubsampledGaussian(num_steps=5, sampling_probability=0.01, noise_multiplier=1.0),
        expert=SubsampledGaussian(num_steps=5, sampling_probability=0.01, noise_multiplier=2.0),
    )
    guarantee = replay(filled(tmp_path / "ledger"))
    assert guarantee.epsilon(1e-5) == pytest.approx(plan.guarantee().epsilon(1e-5), rel=1e-9)
    assert guarantee.adjacency == "add_remove"
    assert replay(tmp_path / "ledger", adjacency="replace_one").epsilon(1e-5) > guarantee.epsilon(1e-5)


def test_every_line_is_readable_before_the_next_is_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for i in range(1, 4):
        charge(ledger)
        assert streams(tmp_path / "ledger")["shared", 1.0, 0.01].num_steps == i


@pytest.mark.parametrize(
    ("rest", "counts"),
    [
        (slice(-20), {"shared": 5, "expert": 5}),  # the last expert line, cut
        (slice(-1), {"shared": 5, "expert": 5}),
        (slice(5), {"shared": 6, "expert": 5}),  # nothing tells whose line began
    ],
)
def test_a_torn_last_line_counts_as_a_release_of_the_streams_it_can_be(
    tmp_path: Path, rest: slice, counts: dict[str, int]
) -> None:
    path = filled(tmp_path / "ledger")
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + last[rest])
    assert {key[0]: m.num_steps for key, m in streams(path).items()} == counts


def test_an_unreadable_rest_counts_as_a_release_of_every_stream(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger")
    path.write_bytes(path.read_bytes() + b"\0" * 40)
    assert {key[0]: m.num_steps for key, m in streams(path).items()} == {"shared": 6, "expert": 6}


def test_two_processes_cannot_write_to_one_ledger(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "ledger")
    second = Ledger.open(tmp_path / "ledger")
    charge(first)
    with pytest.raises(ValueError, match="another process"):
        charge(second)
    charge(first)
    assert Ledger.verify(tmp_path / "ledger").num_releases == 2


@pytest.mark.parametrize("damage", ["drop", "swap", "edit", "garbage", "format"])
def test_damage_anywhere_else_is_refused(tmp_path: Path, damage: str) -> None:
    path = filled(tmp_path / "ledger")
    lines = path.read_text().splitlines()
    if damage == "drop":
        del lines[3]
    elif damage == "swap":
        lines[3], lines[4] = lines[4], lines[3]
    elif damage == "edit":
        lines[3] = json.dumps({**json.loads(lines[3]), "noise_multiplier": 9.0})
    elif damage == "garbage":
        lines[3] = "{"
    else:
        lines[0] = json.dumps({"format": "other", "previous": ""})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(LedgerDamaged, match="line"):
        replay(path)


def test_a_ledger_is_never_overwritten(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger")
    with pytest.raises(FileExistsError):
        Ledger(path)


def test_an_empty_ledger_has_spent_nothing_and_says_so(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger")
    with pytest.raises(ValueError, match="nothing was released"):
        replay(tmp_path / "ledger")


@pytest.mark.parametrize(
    ("name", "value"),
    [("noise_multiplier", 0.0), ("sampling_probability", 1.5), ("clip_norm", math.inf), ("clip_norm", math.nan)],
)
def test_what_cannot_be_a_private_release_is_refused_and_not_written(tmp_path: Path, name: str, value: float) -> None:
    ledger = Ledger(tmp_path / "ledger")
    before = (tmp_path / "ledger").read_text()
    entry = {"noise_multiplier": 1.0, "sampling_probability": 0.01, "clip_norm": 1.0, name: value}
    with pytest.raises(ValueError, match=name):
        ledger.append(stream="shared", **entry)
    assert (tmp_path / "ledger").read_text() == before


def test_verify_tells_what_the_ledger_holds(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger", cycles=2)
    Ledger.open(path).append(stream="expert", noise_multiplier=2.0, sampling_probability=0.01, clip_norm=0.5)
    content = Ledger.verify(path)
    assert content.segments == tuple(
        LedgerSegment(stream=s, noise_multiplier=noise, sampling_probability=0.01, clip_norm=c, num_releases=count)
        for s, noise, c, count in [("shared", 1.0, 1.0, 2), ("expert", 2.0, 1.0, 2), ("expert", 2.0, 0.5, 1)]
    )
    assert (content.num_releases, content.torn) == (5, False)
    assert content.streams() == streams(path)
    assert content.streams()["expert", 2.0, 0.01].num_steps == 3


def test_a_ledger_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    straight, again = filled(tmp_path / "straight", cycles=2), filled(tmp_path / "again", cycles=1)
    ledger = Ledger.open(again)
    charge(ledger, "shared", 1.0)
    charge(ledger, "expert", 2.0)
    assert again.read_bytes() == straight.read_bytes()
    with pytest.raises(FileNotFoundError):
        Ledger.open(tmp_path / "none")


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_opening_a_torn_ledger_changes_nothing_of_what_was_spent(tmp_path: Path, cut: int) -> None:
    path = filled(tmp_path / "ledger", cycles=2)
    path.write_bytes(path.read_bytes()[:-cut])
    before = streams(path)
    ledger = Ledger.open(path)
    assert streams(path) == before
    assert not Ledger.verify(path).torn
    charge(ledger)
    assert streams(path)["shared", 1.0, 0.01].num_steps == before["shared", 1.0, 0.01].num_steps + 1
    assert [file.name for file in tmp_path.iterdir()] == ["ledger"]


def test_a_ledger_torn_at_its_first_release_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    charge(Ledger(path))
    path.write_bytes(path.read_bytes()[:-5])
    charge(Ledger.open(path))
    assert streams(path)["shared", 1.0, 0.01].num_steps == 1


def test_a_damaged_ledger_cannot_be_opened(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger")
    path.write_text(path.read_text().replace("shared", "Shared", 1))
    before = path.read_bytes()
    for use in (Ledger.open, Ledger.verify, Ledger.replay):
        with pytest.raises(LedgerDamaged, match="line 3"):
            use(path)
    assert path.read_bytes() == before


def test_after_a_failed_write_the_ledger_must_be_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    charge(ledger)

    def full(_: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space"):
            charge(ledger)
    with pytest.raises(ValueError, match=r"go on with Ledger\.open"):
        charge(ledger)
    charge(Ledger.open(path))
    assert streams(path)["shared", 1.0, 0.01].num_steps == 3


def long_ledger(settings: int) -> bytes:
    lines = [json.dumps({"format": FORMAT, "previous": ""}).encode()]
    for i in range(settings):
        entry = checked_release("shared", 1 + i / settings, 0.01, 1.0)
        lines.append(json.dumps({**entry, "previous": digest(lines[-1])}).encode())
    return b"\n".join([*lines, b""])


def test_ten_thousand_settings_take_no_time() -> None:
    data = long_ledger(10_000)
    started = time.process_time()
    content = parse_ledger(data)
    guarantee = content.guarantee()
    assert time.process_time() - started < 1.0
    assert (len(content.segments), len(guarantee.streams)) == (10_000, 10_000)
