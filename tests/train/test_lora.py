"""The adapter: the base's outputs before the first step, exact gradients in every precision and mode of running."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from raptor_train.adapters.switch import SwitchClassifier
from raptor_train.clipping import clipped_sums
from raptor_train.lora import LoraLinear
from raptor_train.records import Records
from raptor_train.step import record_gradients
from raptor_train.tape import RecordedLinear, Tape, recording

from .conftest import adapt, random_records, randomise

ROWS = [1, 50]  # fewer and more than the rows from which on the weights are merged


def lora(dtype: torch.dtype = torch.float64, *, bias: bool = True, trained: bool = True) -> LoraLinear:
    generator = torch.Generator().manual_seed(0)
    base = nn.Linear(12, 16, bias=bias)
    with torch.no_grad():
        for p in base.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    adapter = LoraLinear(base.to(dtype), rank=4, scale=0.7, generator=generator)
    if trained:
        with torch.no_grad():
            adapter.up.weight.copy_(torch.randn(adapter.up.weight.shape, generator=generator))
    return adapter


def inputs(rows: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, rows, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_output_is_the_bases_bit_for_bit_before_the_first_step(
    dtype: torch.dtype, autocast: bool, recorded: bool, bias: bool, rows: int
) -> None:
    adapter, x = lora(dtype, bias=bias, trained=False), inputs(rows, dtype)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast),
        recording([adapter.down, adapter.up] if recorded else [], Tape(3)),
    ):
        output, expected = adapter(x), adapter.base(x)
    assert output.dtype == expected.dtype
    assert torch.equal(output, expected)


@pytest.mark.parametrize("rows", ROWS)
def test_output_and_gradients_are_those_of_two_linear_layers(rows: int) -> None:
    adapter, x = lora(), inputs(rows).requires_grad_(True)
    upstream = torch.randn(3, rows, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    tape = Tape(3)
    with recording([adapter.down, adapter.up], tape):
        output = adapter(x)
        (before,) = torch.autograd.grad(output, x, upstream)
    down, up, base = adapter.down.weight, adapter.up.weight, adapter.base
    plain = base(x) + 0.7 * ((x @ down.mT) @ up.mT)
    expected = torch.autograd.grad(plain, (x, down, up), upstream)
    by_layer = {id(rows.layer): (rows.left.mT @ rows.right).sum(0) for rows in tape.rows}
    got = (before, by_layer[id(adapter.down)], by_layer[id(adapter.up)])
    torch.testing.assert_close(output, plain, rtol=1e-13, atol=1e-13)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_factor_that_does_not_train_leaves_nothing() -> None:
    adapter = lora()
    adapter.down.weight.requires_grad_(False)
    tape = Tape(3)
    with recording([adapter.up], tape):
        adapter(inputs(5)).sum().backward()
    assert [rows.layer for rows in tape.rows] == [adapter.up]


@pytest.mark.parametrize("backward_in_autocast", [True, False])
@pytest.mark.parametrize(("dtype", "autocast"), [(torch.bfloat16, False), (torch.float32, True)])
@pytest.mark.parametrize("rows", ROWS)
def test_in_low_precision_norms_and_sums_stay_in_float32(
    rows: int, dtype: torch.dtype, autocast: bool, backward_in_autocast: bool
) -> None:
    """The layer computes in bfloat16; from its input and output gradient on, nothing is rounded below float32."""
    adapter, x = lora(dtype), inputs(rows, dtype).requires_grad_(True)
    tape, parameters = Tape(3), [adapter.down.weight, adapter.up.weight]
    assert {p.dtype for p in parameters} == {torch.float32}
    with recording([adapter.down, adapter.up], tape):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            output = adapter(x)
        upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).bfloat16()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=backward_in_autocast):
            output.backward(upstream)
            sums = clipped_sums(tape.rows, 3, 5.0, parameters)
    assert output.dtype == torch.bfloat16
    assert x.grad is not None
    assert x.grad.dtype == dtype
    left, right = upstream.double(), x.detach().double()
    down, up = (p.detach().double() for p in parameters)
    gradients = [0.7 * (left @ up).mT @ right, 0.7 * left.mT @ (right @ down.mT)]
    norms = torch.stack([g.norm(dim=(1, 2)) for g in gradients]).norm(dim=0)
    factors = (5.0 / norms).clamp(max=1)
    assert bool((factors < 1).any())
    for total, g in zip(sums, gradients, strict=True):
        assert total.dtype == torch.float32
        expected = torch.einsum("g,goi->oi", factors, g)
        assert float((total.double() - expected).abs().max()) < 1e-4 * float(expected.abs().max())


def sums_of(adapted: SwitchClassifier, records: Records, role_name: str) -> list[Tensor]:
    role, other = getattr(adapted, role_name), adapted.expert if role_name == "shared" else adapted.shared
    tape = record_gradients(role, adapted, records, others=other.parameters)
    return clipped_sums(tape.rows, len(records), 0.5, role.parameters)


def randomised() -> SwitchClassifier:
    adapted = adapt()
    randomise(adapted)
    return adapted


def checkpoint_blocks(adapted: SwitchClassifier, *, use_reentrant: bool) -> None:
    def recomputed(forward: Callable[..., object]) -> Callable[..., object]:
        return lambda *args, **kwargs: checkpoint(lambda *a: forward(*a, **kwargs), *args, use_reentrant=use_reentrant)

    for block in adapted.model.encoder.encoder.block:
        block.forward = recomputed(block.forward)


@pytest.mark.parametrize("role_name", ["shared", "expert"])
def test_checkpointing_that_is_not_reentrant_changes_nothing(role_name: str) -> None:
    records, adapted = random_records(6), randomised()
    expected = sums_of(adapted, records, role_name)
    checkpoint_blocks(adapted, use_reentrant=False)
    assert any(bool(e.any()) for e in expected)
    assert all(torch.equal(a, b) for a, b in zip(sums_of(adapted, records, role_name), expected, strict=True))


def test_reentrant_checkpointing_is_refused_where_it_loses_gradients() -> None:
    adapted, records = randomised(), random_records(6)
    role, tape = adapted.shared, Tape(len(records))
    checkpoint_blocks(adapted, use_reentrant=True)
    with recording(role.trained_layers, tape), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted.losses(records).sum().backward()
    with pytest.raises(ValueError, match=r"32 of 33 trained layers got no gradient.*use_reentrant=False"):
        tape.check_complete(role.trained_layers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rows", ROWS)
def test_compiled_layers_leave_the_same_sums(rows: int) -> None:
    adapter = lora()
    head = RecordedLinear(16, 2, dtype=torch.float64)
    model, layers = nn.Sequential(adapter, nn.ReLU(), head), [adapter.down, adapter.up, head]
    parameters = [p for layer in layers for p in layer.parameters()]

    def sums(run: Callable[[Tensor], Tensor]) -> list[Tensor]:
        tape = Tape(3)
        with recording(layers, tape):
            run(inputs(rows)).square().sum().backward()
        return clipped_sums(tape.rows, 3, 0.5, parameters)

    expected = sums(model)
    torch.compiler.reset()
    try:
        got = sums(torch.compile(model, backend="aot_eager"))
    finally:
        torch.compiler.reset()
    for a, b in zip(got, expected, strict=True):
        assert bool(b.any())
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
