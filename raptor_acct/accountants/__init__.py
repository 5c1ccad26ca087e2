"""Privacy accountants: streams and an adjacency in, a privacy profile out. They know nothing of experts or trainers."""

from collections.abc import Sequence

from raptor_acct.accountants._stream import Profile, Stream
from raptor_acct.accountants.gaussian import GaussianProfile, gaussian_profile
from raptor_acct.accountants.pld import PLDProfile, pld_profile
from raptor_acct.adjacency import Adjacency

__all__ = [
    "GaussianProfile",
    "PLDProfile",
    "Profile",
    "Stream",
    "gaussian_profile",
    "pld_profile",
    "privacy_profile",
]


def privacy_profile(streams: Sequence[Stream], adjacency: Adjacency) -> Profile:
    """Return the profile of independent streams by the tightest accountant that covers them.

    Without sampling this is the closed form; otherwise a discretised privacy loss distribution.
    """
    if all(stream.sampling_probability == 1 for stream in streams):
        return gaussian_profile(streams, adjacency)
    return pld_profile(streams, adjacency)
