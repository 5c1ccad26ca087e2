"""Bugs are planted wherever the function was imported to, and are gone afterwards."""

import pytest
import torch

from raptor_train import loop, step
from raptor_train.adapters import switch
from raptor_train.step import Stream

from .mutants import MUTANTS
from .patching import rewritten


class Base:
    def size(self) -> int:
        return 1


class Derived(Base):
    def size(self) -> int:
        return super().size() + 1


def test_every_reference_sees_the_change_inside_the_block_only() -> None:
    alias = Derived.size
    with rewritten(Derived.size, {"+ 1": "+ 10"}):
        assert Derived().size() == alias(Derived()) == 11
    assert Derived().size() == 2
    assert loop.release is step.release


def test_a_bug_whose_place_is_gone_is_an_error() -> None:
    with (
        pytest.raises(ValueError, match=r"expected 'no such text' once in Derived\.size, found it 0 times"),
        rewritten(Derived.size, {"no such text": ""}),
    ):
        pass


def test_decorated_functions_and_properties_keep_what_wraps_them() -> None:
    assert MUTANTS["owner from a dropout pass"].function is switch.router_gates
    with rewritten(switch.router_gates, {"sparse_blocks(model), {}": "sparse_blocks(model), 'planted'"}):
        assert "planted" in str(switch.router_gates.__wrapped__.__code__.co_consts)  # type: ignore[attr-defined]
    stream = Stream.__new__(Stream)
    vars(stream).update(noise_multiplier=3.0, clip_norm=2.0)
    with MUTANTS["sigma squared for sigma"].planted():
        assert stream.noise_std == 18
    assert stream.noise_std == 6
    assert torch.is_grad_enabled()
