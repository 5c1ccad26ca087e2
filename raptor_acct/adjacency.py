"""Adjacency: which two data sets count as neighbours. Every epsilon of this library is named with one of these.

``"add_remove"``: one record is there or is not. Both directions are covered: the guarantee is the worse of the two.

``"replace_one"``: one record is exchanged for another. The clipped sum can then move by twice the clip norm, so the
same noise gives a larger epsilon.
"""

from typing import Literal, cast, get_args

from raptor_acct._validate import choice

Adjacency = Literal["add_remove", "replace_one"]

ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)


def check_adjacency(value: object) -> Adjacency:
    """Return ``value`` if it names an adjacency.

    Raises:
        ValueError: If it does not.

    >>> check_adjacency("add_remove")
    'add_remove'
    >>> check_adjacency("zero_out")
    Traceback (most recent call last):
    ValueError: expected adjacency to be one of 'add_remove', 'replace_one', got adjacency='zero_out'
    """
    return cast(Adjacency, choice("adjacency", value, ADJACENCIES))
