# SPDX-License-Identifier: Apache-2.0
"""What is to be expected of a page of which looks have seen little.

Of a thousand pages that are all used alike some were not found in use by any of the last looks:
those of the least heat are taken for the coldest, and are not. What was seen of a page counts as
much as there was to see; what is known of all pages counts as one use more, for each of them. That
is the mean of its rate by Bayes' rule, where rates are spread as a gamma distribution of shape 1
whose mean is the mean of all (Gelman et al., Bayesian Data Analysis, 2.6), and uses by Poisson's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def expected(heat: npt.NDArray[np.float32], grown: float, mean: float) -> npt.NDArray[np.float32]:
    """Heat that pages come to in the long run, float32[n].

    Args:
        heat: as it is, float32[n].
        grown: the share of its long-run level that heat can have by now, in (0, 1].
        mean: heat of a page of mean use in the long run, greater than 0.
    """
    # A sum of n looks whose weights fade is as certain as one of (sum w)² / sum w² looks: up to
    # twice as many as its weights come to.
    weight = np.float32(2 / (2 - grown))
    return (1 + weight * heat) / np.float32(1 / mean + weight * grown)
