"""The two composition theorems of a RAPTOR run: parallel across experts, sequential across streams."""

from collections.abc import Sequence

from raptor_acct.mechanisms import IndependentStreams, Mechanism, SubsampledGaussian, check_mechanisms, one_batch


def parallel_across_experts(mechanisms: Sequence[SubsampledGaussian]) -> SubsampledGaussian:
    """Return the one stream that the streams of all experts of a layer amount to (theory P1).

    Theorem: let every record have one owner expert and give a gradient to that expert only. Stack the experts' sums,
    each divided by its clip norm. A record changes one block, by a vector of norm at most 1; so the release of all
    experts is one Poisson-subsampled Gaussian with the smallest noise multiplier. The number of experts cancels.

    Args:
        mechanisms: One stream an expert, all on the same Poisson sample of each step.

    Returns:
        The stream that stands for the whole layer.

    Raises:
        ValueError: If there is none, or they differ in sampling probability or number of steps.

    Guarantee:
        The owner may depend on the record itself and on everything released before; never on other records of the
        batch. Not covered, since each couples records: expert capacity shared by a batch, expert-choice routing, a
        load-balancing loss over a batch, batch normalisation. Holds for both adjacencies: a replaced record may
        change its owner, which moves two blocks by 1 each, and that is no worse than one block by 2.

    >>> experts = [SubsampledGaussian(num_steps=100, sampling_probability=0.1, noise_multiplier=s) for s in (2.0, 1.5)]
    >>> parallel_across_experts(experts)
    SubsampledGaussian(num_steps=100, sampling_probability=0.1, noise_multiplier=1.5)
    """
    check_mechanisms(mechanisms, SubsampledGaussian)
    return one_batch(mechanisms, min(stream.noise_multiplier for stream in mechanisms))


def sequential_across_streams(mechanisms: Sequence[Mechanism]) -> IndependentStreams:
    """Return the composition of mechanisms that draw their samples and noise independently (theory P2).

    Theorem: the privacy losses are independent and add, so their distributions convolve. The result is never worse
    than basic composition, which adds the epsilons and the deltas.

    Args:
        mechanisms: Any number of streams or plans, in any order; what one releases may steer the later ones.

    Raises:
        ValueError: If there is none.

    Guarantee:
        Every mechanism must draw Poisson samples of its own. Releases from the *same* sample are one mechanism,
        :func:`raptor_acct.same_batch`: after the first release a record's chance of being in the sample is
        no longer its sampling probability (P4).

    >>> stream = SubsampledGaussian(num_steps=1, sampling_probability=1, noise_multiplier=2.0)
    >>> both = sequential_across_streams([stream, stream])
    >>> round(both.guarantee().epsilon(1e-5) / stream.guarantee().epsilon(1e-5), 3)
    1.477
    """
    check_mechanisms(mechanisms, Mechanism)
    return IndependentStreams(parts=tuple(mechanisms))
