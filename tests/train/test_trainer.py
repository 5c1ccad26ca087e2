"""The loop: what is released, what is charged, and what is refused before anything is spent."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from raptor_acct import RolePlan, SubsampledGaussian, ledger
from raptor_train.adapters.switch import SwitchClassifier
from raptor_train.baselines import everything, make_monolithic, make_non_private
from raptor_train.records import Records
from raptor_train.trainer import BudgetExceeded, Trainer, make_private

from .conftest import EXPERTS, adapt, random_records, randomise, tiny_classifier


class RecordedNoise:
    """Returns zeros and remembers what was asked for; or unit noise times the standard deviation."""

    def __init__(self) -> None:
        self.stds: list[float] = []

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        self.stds.append(standard_deviation)
        return torch.zeros_like(like)


def plan_of(steps: int = 2, q: float = 0.5, sigmas: tuple[float, float] = (1.0, 2.0)) -> RolePlan:
    def stream(sigma: float) -> SubsampledGaussian:
        return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)

    return RolePlan(shared=stream(sigmas[0]), expert=stream(sigmas[1]))


def adam(adapted: SwitchClassifier) -> torch.optim.Optimizer:
    return torch.optim.Adam([*adapted.shared.parameters, *adapted.expert.parameters], lr=0.01)


def raptor(tmp_path: Path, adapted: SwitchClassifier | None = None, **changes: object) -> Trainer:
    adapted = adapted or adapt()
    arguments: dict[str, object] = {
        "optimizer": adam(adapted),
        "records": random_records(8),
        "plan": plan_of(),
        "clip_shared": 0.5,
        "clip_expert": 0.25,
        "ledger_path": tmp_path / "ledger.jsonl",
        "probe": random_records(3, seed=5),
        "seed": 0,
    }
    return make_private(adapted, **{**arguments, **changes})  # type: ignore[arg-type]


def weights(adapted: SwitchClassifier) -> list[Tensor]:
    return [p.detach().clone() for p in (*adapted.shared.parameters, *adapted.expert.parameters)]


def test_one_cycle_trains_both_roles_and_nothing_else(tmp_path: Path) -> None:
    adapted = adapt()
    before = {name: p.detach().clone() for name, p in adapted.model.named_parameters()}
    trained = {id(p) for p in (*adapted.shared.parameters, *adapted.expert.parameters)}
    raptor(tmp_path, adapted).step()
    for name, parameter in adapted.model.named_parameters():
        assert torch.equal(before[name], parameter) == (id(parameter) not in trained), name


def test_the_ledger_holds_one_line_a_release_and_replays_to_the_plan(tmp_path: Path) -> None:
    trainer = raptor(tmp_path, plan=plan_of(steps=3))
    trainer.run()
    streams = ledger.streams(tmp_path / "ledger.jsonl")
    assert {key[0]: m.num_steps for key, m in streams.items()} == {"shared": 3, "expert": 3}
    assert trainer.guarantee.epsilon(1e-5) == pytest.approx(plan_of(steps=3).guarantee().epsilon(1e-5), rel=1e-9)


def test_fewer_steps_spend_less_and_a_step_beyond_the_plan_is_refused(tmp_path: Path) -> None:
    trainer = raptor(tmp_path, plan=plan_of(steps=2))
    trainer.step()
    partly = trainer.guarantee.epsilon(1e-5)
    trainer.step()
    assert partly < trainer.guarantee.epsilon(1e-5)
    lines = (tmp_path / "ledger.jsonl").read_text()
    with pytest.raises(BudgetExceeded, match="2 cycles"):
        trainer.step()
    assert (tmp_path / "ledger.jsonl").read_text() == lines


def test_after_an_interruption_no_stream_is_released_more_often_than_planned(tmp_path: Path) -> None:
    class FailingOnce(RecordedNoise):
        def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
            noise = super().__call__(like, standard_deviation)
            if len(self.stds) == len(adapted.shared.parameters) + 3:  # in the first expert release
                raise KeyboardInterrupt
            return noise

    adapted = adapt()
    trainer = raptor(tmp_path, adapted, plan=plan_of(steps=3), noise=FailingOnce())
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    trainer.run()
    charged = {key[0]: m.num_steps for key, m in ledger.streams(tmp_path / "ledger.jsonl").items()}
    assert charged == {"shared": 3, "expert": 3}


def test_an_optimizer_that_fails_cannot_be_retried_for_ever(tmp_path: Path) -> None:
    class Broken(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            raise RuntimeError("broken")

    adapted = adapt()
    broken = Broken([*adapted.shared.parameters, *adapted.expert.parameters], lr=1.0)
    trainer = raptor(tmp_path, adapted, plan=plan_of(steps=2), optimizer=broken)
    for _ in range(4):
        with pytest.raises(RuntimeError, match="broken"):
            trainer.step()
    with pytest.raises(BudgetExceeded):
        trainer.step()
    assert trainer.guarantee.epsilon(1e-5) == pytest.approx(plan_of(steps=2).guarantee().epsilon(1e-5), rel=1e-9)


def test_a_model_put_into_training_mode_later_is_refused_without_a_charge(tmp_path: Path) -> None:
    adapted = adapt()
    trainer = raptor(tmp_path, adapted)
    adapted.model.train()
    with pytest.raises(ValueError, match="training mode"):
        trainer.step()
    assert not ledger.streams(tmp_path / "ledger.jsonl")


def test_denominators_are_public_constants(tmp_path: Path) -> None:
    trainer = raptor(tmp_path, plan=plan_of(q=0.5), records=random_records(8), num_records=10)
    assert [s.denominator for s in trainer.streams] == [5.0, 5.0 / EXPERTS]


def test_noise_is_asked_for_once_a_tensor_with_sigma_times_its_streams_clip_norm(tmp_path: Path) -> None:
    noise, adapted = RecordedNoise(), adapt()
    raptor(tmp_path, adapted, noise=noise, micro_batch_size=1).step()
    shared, expert = len(adapted.shared.parameters), len(adapted.expert.parameters)
    assert noise.stds == [0.5 * 1.0] * shared + [0.25 * 2.0] * expert


@pytest.mark.parametrize("owners", ["fixed", "recomputed"])
def test_an_empty_batch_releases_noise_of_the_declared_size_over_public_denominators(
    tmp_path: Path, owners: str
) -> None:
    adapted = adapt()
    optimizer = torch.optim.SGD([*adapted.shared.parameters, *adapted.expert.parameters], lr=1.0)
    steps, q = 50, 1e-9  # every batch is empty
    before = weights(adapted)
    raptor(tmp_path, adapted, optimizer=optimizer, plan=plan_of(steps=steps, q=q), owners=owners).run()
    moved = [(after - b).numpy().ravel() for after, b in zip(weights(adapted), before, strict=True)]
    split = len(adapted.shared.parameters)
    batch = q * 8
    for part, std in ((moved[:split], 0.5 * 1.0 / batch), (moved[split:], 0.25 * 2.0 / (batch / EXPERTS))):
        sample = np.concatenate(part) / (std * math.sqrt(steps))
        statistic = float(np.square(sample.astype(float)).sum())
        assert 1e-6 < stats.chi2.sf(statistic, len(sample)) < 1 - 1e-6
    assert sum(m.num_steps for m in ledger.streams(tmp_path / "ledger.jsonl").values()) == 2 * steps


def test_a_record_whose_gradient_is_zero_changes_nothing(tmp_path: Path) -> None:
    """Denominators are public: B and B/E do not move with the realised batch."""

    class SilentLabel(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            return super().losses(records) * (records.labels != 0)

    eight = random_records(8)
    whole = Records(eight.input_ids, eight.attention_mask, torch.tensor([1, 2, 1, 2, 1, 2, 1, 0]))
    released = []
    for name, records in (("with", whole), ("without", whole.take(torch.arange(7)))):
        adapted = SilentLabel(tiny_classifier(), expert_layers=(1,))
        randomise(adapted)
        (tmp_path / name).mkdir()
        plan = plan_of(steps=3, q=0.7)
        raptor(tmp_path / name, adapted, records=records, num_records=8, plan=plan, micro_batch_size=1).run()
        released.append(weights(adapted))
    assert all(torch.equal(a, b) for a, b in zip(*released, strict=True))


def test_the_two_streams_and_all_steps_draw_their_own_poisson_batches(tmp_path: Path) -> None:
    trainer = raptor(tmp_path, plan=plan_of(steps=40), records=random_records(64))
    drawn: list[np.ndarray] = []
    sampler = trainer._coins
    sample = sampler.sample

    def spy(q: float) -> Tensor:
        indices = sample(q)
        drawn.append(np.isin(np.arange(64), indices.numpy()))
        return indices

    sampler.sample = spy  # type: ignore[method-assign]
    trainer.run()
    coins = np.stack(drawn).astype(int)  # [releases, records]: shared, expert, shared, ...
    assert coins.shape == (80, 64)
    assert stats.binomtest(int(coins.sum()), coins.size, 0.5).pvalue > 1e-6
    for other in (coins[1::2], np.roll(coins[0::2], 1, axis=0)):
        agree = int((coins[0::2] == other).sum())
        assert stats.binomtest(agree, other.size, 0.5).pvalue > 1e-6
    sizes = coins.sum(1)
    assert stats.chi2.sf(float(((sizes - 32) ** 2).sum() / 16), 80) > 1e-6  # not over-dispersed
    assert sizes.std() > 2  # and not of a fixed size


def test_the_same_seed_gives_the_same_run_and_no_seed_another(tmp_path: Path) -> None:
    runs = []
    for i, seed in enumerate((3, 3, None, None)):
        adapted = adapt()
        (tmp_path / str(i)).mkdir()
        raptor(tmp_path / str(i), adapted, seed=seed).run()
        runs.append(torch.cat([w.flatten() for w in weights(adapted)]))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[2], runs[3])


@pytest.mark.parametrize("make", [None, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad])
def test_any_optimizer_without_a_closure_trains_both_roles(tmp_path: Path, make: type | None) -> None:
    adapted = adapt()
    before = weights(adapted)
    parameters = [*adapted.shared.parameters, *adapted.expert.parameters]
    raptor(tmp_path, adapted, optimizer=make(parameters, lr=0.01) if make else None).run()
    assert all(not torch.equal(a, b) for a, b in zip(before, weights(adapted), strict=True))


def test_monolithic_runs_charge_one_stream(tmp_path: Path) -> None:
    adapted, mechanism = adapt(layers=(1, 3)), plan_of(steps=2).shared
    trainer = make_monolithic(
        adapted,
        adam(adapted),
        random_records(8),
        mechanism,
        clip_norm=0.5,
        ledger_path=tmp_path / "ledger.jsonl",
        probe=random_records(3, seed=5),
        seed=0,
    )
    trainer.run()
    (charged,) = ledger.streams(tmp_path / "ledger.jsonl").values()
    assert charged == mechanism


def test_a_non_private_run_lowers_the_loss_and_has_no_guarantee() -> None:
    adapted, records = adapt(), random_records(16)
    before = float(adapted.losses(records).sum().detach())
    trainer = make_non_private(adapted, adam(adapted), records, sampling_probability=1.0, num_steps=20, seed=0)
    trainer.run()
    assert float(adapted.losses(records).sum().detach()) < 0.9 * before
    with pytest.raises(ValueError, match="not private"):
        _ = trainer.guarantee


# --- refused before anything is spent -------------------------------------------------------------------------------


def refused(tmp_path: Path, match: str, adapted: SwitchClassifier | None = None, **changes: object) -> None:
    with pytest.raises(ValueError, match=match):
        raptor(tmp_path, adapted, **changes)
    assert not (tmp_path / "ledger.jsonl").exists()


def test_an_optimizer_of_another_model_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "optimizer's parameters are not the model's", optimizer=adam(adapt()))
    adapted = adapt()
    half = torch.optim.Adam(adapted.shared.parameters)
    refused(tmp_path, "missing", adapted, optimizer=half)
    refused(tmp_path, "LBFGS", adapted, optimizer=torch.optim.LBFGS(adapted.shared.parameters))


def test_a_trainable_router_or_another_parameter_without_a_role_is_refused(tmp_path: Path) -> None:
    adapted = adapt()
    adapted.model.encoder.encoder.block[1].layer[-1].mlp.router.classifier.weight.requires_grad_(True)
    refused(tmp_path, "freeze the router", adapted)
    adapted = adapt()
    adapted.model.encoder.encoder.final_layer_norm.weight.requires_grad_(True)
    refused(tmp_path, "final_layer_norm", adapted)


def test_a_role_without_parameters_is_refused(tmp_path: Path) -> None:
    adapted = adapt()
    for parameter in adapted.expert.parameters:
        parameter.requires_grad_(False)
    refused(tmp_path, "role 'expert' has 0 trainable tensors", adapted)


def test_a_model_in_training_mode_is_refused(tmp_path: Path) -> None:
    adapted = adapt()
    adapted.model.train()
    refused(tmp_path, "training mode", adapted)


def test_experts_of_two_layers_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "one selected layer", adapt(layers=(1, 3)))


@pytest.mark.parametrize("clip", [0.0, -1.0, 1e-26, math.inf, math.nan, "1", None])
def test_a_clip_norm_that_is_no_positive_number_is_refused(tmp_path: Path, clip: object) -> None:
    refused(tmp_path, "clip_shared", clip_shared=clip)
    refused(tmp_path, "clip_expert", clip_expert=clip)


def test_records_that_would_break_a_step_are_refused(tmp_path: Path) -> None:
    good = random_records(4)
    left_padded = Records(good.input_ids.flip(1), good.attention_mask.flip(1), good.labels)
    refused(tmp_path, "pad on the right", records=left_padded)
    no_token = Records(good.input_ids, good.attention_mask * torch.tensor([[1], [0], [1], [1]]), good.labels)
    refused(tmp_path, "some of the records have no token", records=no_token)
    refused(
        tmp_path, "labels of records as int64", records=Records(good.input_ids, good.attention_mask, good.labels.int())
    )
    refused(tmp_path, "input_ids of records", records=Records(good.input_ids + 50, good.attention_mask, good.labels))
    refused(
        tmp_path, "labels of records in 0..2", records=Records(good.input_ids, good.attention_mask, good.labels + 5)
    )
    refused(tmp_path, "at least one record in records", records=good.take(torch.tensor([], dtype=torch.int64)))
    with pytest.raises(ValueError, match=r"\(4, 10\).*\(4, 9\)"):
        Records(good.input_ids, good.attention_mask[:, 1:], good.labels)


def test_a_loader_of_shuffled_fixed_size_batches_is_refused(tmp_path: Path) -> None:
    data = torch.utils.data.TensorDataset(random_records(8).input_ids)
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    refused(tmp_path, "fixed size would not have the accounted privacy", records=loader)


def test_other_choices_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "owners", owners="random")
    refused(tmp_path, "micro_batch_size", micro_batch_size=0)
    refused(tmp_path, "num_records", num_records=0)
    refused(tmp_path, "seed", seed=-1)
    refused(tmp_path, "RolePlan", plan=plan_of().shared)
    refused(tmp_path, "two records of different length", probe=random_records(1))
    refused(tmp_path, "at least one record in probe", probe=random_records(2).take(torch.tensor([], dtype=torch.int64)))
    half = SwitchClassifier(tiny_classifier().bfloat16(), expert_layers=(1,))
    refused(tmp_path, "a model in float32 or float64", half)
    mixed = adapt()
    mixed.shared.layers[0].double()
    refused(tmp_path, "all in float32 or all in float64", mixed)
    same_batch = RolePlan(shared=plan_of().shared, expert=plan_of().expert, sampling="same_batch")
    refused(tmp_path, "independent", plan=same_batch)


def test_lower_precision_is_refused_before_training_and_in_it(tmp_path: Path) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        refused(tmp_path, "autocast is on")
    trainer = raptor(tmp_path)
    try:
        torch.set_float32_matmul_precision("medium")
        with pytest.raises(ValueError, match="got 'medium'"):
            trainer.step()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert ledger.Ledger.verify(tmp_path / "ledger.jsonl").num_releases == 0


def test_an_existing_ledger_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text("kept")
    with pytest.raises(ValueError, match="a new file in an existing folder"):
        raptor(tmp_path)
    with pytest.raises(ValueError, match="a new file in an existing folder"):
        raptor(tmp_path / "nowhere")
    assert (tmp_path / "ledger.jsonl").read_text() == "kept"


def test_everything_is_both_roles() -> None:
    adapted = adapt()
    role = everything(adapted)
    assert role.num_parameters == adapted.shared.num_parameters + adapted.expert.num_parameters
    assert not role.owned
