"""What all plots share: the result, an empty figure, colours that colour-blind readers tell apart, and the legend."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raptor_acct._validate import shown

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008), without the yellow, which is too light for lines on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#6E6E6E"


def colour_of(name: str, values: Iterable[float]) -> dict[float, str]:
    """Return a colour for each value.

    Raises:
        ValueError: Unless there are 1 to 7, all different: more colours cannot be told apart.

    >>> colour_of("eps", [1.0, 8.0])
    {1.0: '#0072B2', 8.0: '#D55E00'}
    """
    listed = list(values)
    if not 1 <= len(listed) <= len(COLOURS) or len(set(listed)) < len(listed):
        raise ValueError(f"expected 1 to {len(COLOURS)} different values of {name}, got {name}={shown(listed)}")
    return dict(zip(listed, COLOURS, strict=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class Plot:
    """A picture and what it shows.

    Attributes:
        figure: The matplotlib figure.
        numbers: What is drawn, ready for JSON.
    """

    figure: "Figure"
    numbers: dict[str, Any]

    def save(self, path: str | Path) -> None:
        """Write the picture; the suffix of ``path`` says in which format (.png, .pdf, .svg).

        Raises:
            OSError: If the file cannot be written.
            ValueError: If matplotlib does not know the format.
        """
        self.figure.savefig(path, dpi=130)


def panels(count: int, *, width: float, height: float, columns: int | None = None) -> tuple["Figure", list["Axes"]]:
    """Return an empty figure of ``width`` by ``height`` inches, and its panels from left to right, top to bottom.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        message = "plots need matplotlib: pip install 'raptor-moe-dp[plots]'"
        raise ModuleNotFoundError(message, name=error.name) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    across = columns or count
    grid = figure.subplots(-(-count // across), across, squeeze=False)
    for axes in grid.flat:
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, list(grid.flat)


def legend_below(figure: "Figure", handles: Sequence["Artist"], *, columns: int) -> None:
    """Put one legend for all panels below them, outside the data."""
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns, frameon=False)
