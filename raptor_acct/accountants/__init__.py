"""Privacy accountants: streams and an adjacency in, a certified privacy profile out.

They know nothing of experts or trainers.
"""

from collections.abc import Sequence

from raptor_acct.accountants._guess import central_mu, guessed_log_delta
from raptor_acct.accountants._stream import Profile, Stream, merged
from raptor_acct.accountants.gaussian import GaussianProfile, gaussian_profile
from raptor_acct.accountants.sampled import SampledProfile
from raptor_acct.adjacency import Adjacency

__all__ = [
    "GaussianProfile",
    "Profile",
    "SampledProfile",
    "Stream",
    "central_mu",
    "gaussian_profile",
    "guessed_log_delta",
    "merged",
    "privacy_profile",
]


def privacy_profile(streams: Sequence[Stream], adjacency: Adjacency) -> Profile:
    """Return the profile of independent streams: the closed form without sampling, else by the tightest engine."""
    if all(stream.sampling_probability == 1 for stream in streams):
        return gaussian_profile(streams, adjacency)
    return SampledProfile(streams, adjacency)
