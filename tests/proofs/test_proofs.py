"""The proofs hold, their map is true, and the code's bounds are those of the statements."""

import importlib
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from proofs.__main__ import names
from raptor_acct.accountants._line import Plan, table_about
from raptor_acct.accountants._log_mgf import Steps
from raptor_acct.accountants._one_step import Direction, OneStep
from raptor_acct.accountants._step_loss import FADE, StepLoss
from raptor_acct.accountants.contour import contour
from raptor_acct.accountants.tilted_pld import tilted_pld

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (ROOT / "proofs" / "README.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| *[A-Z]\d \w", line)
]
SETTINGS: list[tuple[Direction, float, float, float]] = [  # and a tilt
    ("remove", 1.0, 0.01, 8.0),
    ("remove", 10.0, 0.5, 25.0),
    ("add", 0.5, 0.05, 2.0),
    ("add", 0.5, 0.05, 10.0),
    ("add", 0.3, 0.1, 5.0),
    ("add", 1.0, 0.01, 90.0),
    ("replace", 1.0, 0.01, 8.0),
    ("replace", 0.7, 0.2, 1.5),
]


@pytest.mark.parametrize("name", names())
def test_proof(name: str) -> None:
    importlib.import_module(f"proofs.{name}").prove()


def test_every_proof_is_on_the_map() -> None:
    assert sorted({row[2] for row in ROWS}) == [f"{name}.py" for name in names()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_map_is_true(row: list[str]) -> None:
    _, claim, file, symbol, test, status = row
    source = (ROOT / "proofs" / file).read_text(encoding="utf-8")
    assert claim
    assert re.match(r"symbolic|numeric|cited", status)
    assert "Code. " in source
    assert _found(symbol)
    path, name = test.split("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_the_symbols_a_proof_names_exist(name: str) -> None:
    docstring = importlib.import_module(f"proofs.{name}").__doc__ or ""
    last = docstring.split("Code. ")[1]
    for symbol in re.findall(r"raptor_acct[\w.]*\w", last):
        assert _found(symbol), symbol


@pytest.mark.parametrize(("direction", "sigma", "q", "tilt"), SETTINGS)
def test_quadrature_errs_within_its_bound(direction: Direction, sigma: float, q: float, tilt: float) -> None:
    steps, fine, log_mgf, loss = _fine(direction, sigma, q, tilt)
    t = np.linspace(0.0, 6.0, 7) / np.sqrt(np.sum(fine * (loss - fine @ loss) ** 2))
    made = steps.tilted(tilt, np.array([[log_mgf]]), float(t[-1]), digits=25.0)
    allowed = float(made.error[0, 0]) + 1e-13
    assert allowed < 1e-9
    assert abs(made.log_mgf[0, 0] - log_mgf) <= allowed
    exact = np.exp(1j * np.outer(t, loss - made.mean[0, 0])) @ fine
    assert np.all(np.abs(made.ratio(t)[0] + 1 - exact) <= 2 * allowed)


@pytest.mark.parametrize(("direction", "sigma", "q", "tilt"), SETTINGS)
def test_decay_and_variance_are_bounds(direction: Direction, sigma: float, q: float, tilt: float) -> None:
    steps, fine, log_mgf, loss = _fine(direction, sigma, q, tilt)
    mean = float(fine @ loss)
    variance = float(fine @ (loss - mean) ** 2)
    bound, rest = steps.cells.variance_bound(tilt, np.array([[log_mgf]]), np.array([[mean]]), 1e-6)
    assert variance <= bound[0, 0] + rest[0, 0] * np.max((loss - mean) ** 2)
    t = 10 ** np.linspace(-1, 2, 16) / math.sqrt(variance)
    modulus = np.abs(np.exp(1j * np.outer(t, loss - mean)) @ fine)
    lifted = steps.lifted(tilt, np.array([[log_mgf]]))
    lost = np.array([float(lifted.lost(x)[0]) for x in t])
    assert np.all(modulus <= 1 - lost + 1e-9)
    assert lost[-1] > 0.2


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("sigma", "q", "rare"), [(1.0, 0.01, 1e-20), (0.05, 0.9, 1e-13), (30.0, 1e-6, 1e-40)])
def test_little_is_faded_out(direction: Direction, sigma: float, q: float, rare: float) -> None:
    steps = Steps(StepLoss(np.array([sigma]), np.array([q]), direction, rare))
    low, high = float(steps.step.low[0, 0]), float(steps.step.high[0, 0])
    lost = 0.0
    for share, mean in ((1.0, 0.0),) if direction == "add" else ((1 - q, 0.0), (q, 1 / sigma)):
        lost += share * float(ndtr(low - mean) + ndtr(mean - high))
        if steps.step.fade is not None:
            start = float(steps.step.fade.middle[0, 0])
            lost += share * float(ndtr((mean - start) / math.sqrt(1 + FADE**2 / 2)))
    assert lost <= 1.5 * rare


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
def test_tilts_bound_delta(direction: Direction) -> None:
    stream = (1.0, 0.02, 300)
    for eps in (0.3, 1.0):
        low, _ = tilted_pld([stream], direction, eps, size=1 << 13).delta(eps)
        bounds = table_about(Plan([stream], direction, 1e-6), eps).chernoff(eps)
        assert math.log(low) <= float(np.min(bounds)) < math.log(low) + 5


@pytest.mark.parametrize(
    ("direction", "stream", "eps"),
    [
        ("remove", (1.0, 0.01, 1000), 1.0),
        ("replace", (1.0, 0.01, 1000), 2.0),
        ("add", (1.0, 0.01, 1000), 0.8),
        ("add", (0.55, 0.0005, 154), 0.0513),
        ("add", (0.56, 0.0146, 60), 0.64),
        ("replace", (1.5, 0.00027, 300), 0.0218),
        ("remove", (2.1, 0.0019, 2), 0.0066),
    ],
)
def test_contour_brackets_delta(direction: Direction, stream: tuple[float, float, int], eps: float) -> None:
    low, high = tilted_pld([stream], direction, eps, size=1 << 15).delta(eps)
    for expected in (1e-6, high):
        lower, upper = contour([stream], direction, eps, expected).delta(eps)
        assert lower <= high * (1 + 1e-12)
        assert low <= upper * (1 + 1e-12)


def test_replace_one_pair_is_the_one_accounted() -> None:
    step = OneStep(noise_multiplier=0.8, sampling_probability=0.3, direction="replace")
    x = np.linspace(-14.0, 14.0, 40001)
    normal = [np.exp(-(((x - shift) / 0.8) ** 2) / 2) / (0.8 * math.sqrt(2 * math.pi)) for shift in (0.0, -1.0, 1.0)]
    upper, lower = (0.7 * normal[0] + 0.3 * shifted for shifted in normal[1:])
    for eps in (-0.5, 0.0, 0.7):
        delta = float(np.sum(np.maximum(0.0, upper - math.exp(eps) * lower)) * (x[1] - x[0]))
        assert np.asarray(step.delta(eps)) == pytest.approx(delta, rel=1e-5)


def _fine(direction: Direction, sigma: float, q: float, tilt: float) -> tuple[Steps, np.ndarray, float, np.ndarray]:
    """Return the steps, and by the trapezoid rule on a far finer grid: tilted shares, log M, losses."""
    steps = Steps(StepLoss(np.array([sigma]), np.array([q]), direction, 1e-20))
    z = np.linspace(float(steps.step.low[0, 0]), float(steps.step.high[0, 0]), 40001)
    weight, loss = steps.step.parts(z[None, :])
    logs = weight[0] + tilt * loss[0] - z**2 / 2 - math.log(2 * math.pi) / 2 + math.log(z[1] - z[0])
    top = float(np.max(logs))
    log_mgf = top + math.log(float(np.sum(np.exp(logs - top))))
    return steps, np.exp(logs - log_mgf), log_mgf, loss[0]


def _found(symbol: str) -> bool:
    """Return whether an attribute path can be imported."""
    parts = symbol.split(".")
    for i in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for part in parts[i:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False
