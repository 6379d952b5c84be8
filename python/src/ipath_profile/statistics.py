"""Significance of the difference of two means, as in ``ipath diff`` (docs/guide/diff.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple


def _bounds(bucket: int) -> Tuple[int, int]:
    """The smallest and the largest value of a bucket.

    Bucket ``k >= 0`` holds the values in ``[2^k, 2^(k+1))``; bucket 0 holds the value 0, too.
    Bucket ``-1 - k`` holds the negated values of bucket ``k``, except 0.
    """
    if bucket >= 0:
        return (0 if bucket == 0 else 2**bucket), 2 ** (bucket + 1) - 1
    return 1 - 2**-bucket, -(2 ** (-bucket - 1))


@dataclass
class Distribution:
    """A distribution with an exact sum and exact extremes, and a histogram by powers of two."""

    #: Numbers of values by bucket (see `_bounds`).
    buckets: Dict[int, int] = field(default_factory=dict)
    #: The exact sum.
    total: int = 0
    #: The smallest value. 0 if there are no values.
    low: int = 0
    #: The largest value. 0 if there are no values.
    high: int = 0
    #: False if the histogram is not usable because the runtime had no memory for it.
    is_known: bool = True

    def add(self, stats: Mapping[str, Any]) -> None:
        """Add the values of one metric of one path, as they are in the file."""
        more = {-1 - int(k): int(n) for k, n in stats.get("hist_negative", []) if n}
        more.update({int(k): int(n) for k, n in stats.get("hist", []) if n})
        if not more:
            return
        low, high = int(stats.get("min", 0)), int(stats.get("max", 0))
        if len(more) == 1:
            # The runtime puts all values in one bucket if it has no memory for a histogram.
            # Extremes beyond the adjacent buckets reveal that.
            (only,) = more
            is_far = low < _bounds(only - 1)[0] or high > _bounds(only + 1)[1]
            self.is_known = self.is_known and not is_far
        self._put(more, int(stats["sum"]), low, high)

    def merged(self, other: "Distribution") -> "Distribution":
        """Return the values of both distributions. Neither is changed."""
        both = Distribution(dict(self.buckets), self.total, self.low, self.high, self.is_known and other.is_known)
        if other.buckets:
            both._put(other.buckets, other.total, other.low, other.high)
        return both

    def _put(self, more: Mapping[int, int], total: int, low: int, high: int) -> None:
        is_first = not self.buckets
        self.low, self.high = (low, high) if is_first else (min(self.low, low), max(self.high, high))
        self.total += total
        for bucket, n in more.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + n

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.buckets.values())

    @property
    def mean(self) -> float:
        """The exact mean. NaN if there are no values."""
        return self.total / self.count if self.buckets else math.nan

    def _ends(self, bucket: int) -> Tuple[int, int]:
        high = max(self.low, self.high)
        least, most = _bounds(bucket)
        return min(max(least, self.low), high), min(max(most, self.low), high)

    def cautious_variance(self) -> Optional[float]:
        """An upper bound of the variance, in the squared unit of the values.

        Each value is assumed to be at one of the two ends of its bucket. The fraction at the upper
        end is the same for all buckets and follows from the exact sum. This is the largest variance
        that is possible if the mean position of values in their bucket is the same for all buckets.

        None if there are no values or the histogram is not usable.
        """
        n = self.count
        if not self.is_known or n == 0:
            return None
        if n == 1:
            return 0.0
        first, last = min(self.buckets), max(self.buckets)
        lowest = self._ends(first)[0]
        highest = float(self._ends(last)[1] - lowest)
        total = float(self.total - n * lowest)
        others: List[Tuple[float, float, float]] = []
        for bucket, held in sorted(self.buckets.items()):
            low, high = self._ends(bucket)
            ends = (bucket == first) + (bucket == last)
            others.append((float(low - lowest), float(high - low), float(max(held - ends, 0))))
        lows, widths = sum(b[0] * b[2] for b in others), sum(b[1] * b[2] for b in others)
        place = min(max((total - highest - lows) / widths, 0.0), 1.0) if widths > 0 else 0.0
        mean = total / n
        squares = sum(h * ((1 - place) * (a - mean) ** 2 + place * (a + w - mean) ** 2) for a, w, h in others)
        return (mean**2 + (highest - mean) ** 2 + squares) / n


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for m in range(1, 10_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + step * d or tiny)
            c = 1.0 + step / c or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(logarithm)
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def p_of_means(old: Distribution, new: Distribution) -> float:
    """The p-value of the difference of two means, for one path alone.

    Student's t-test with ``min(n, m) - 1`` degrees of freedom and the variance of both sides
    together (:meth:`Distribution.cautious_variance`), so the result is rather too large than too
    small. NaN if either side has fewer than two values or the variance is not known.
    """
    n, m = old.count, new.count
    if min(n, m) < 2:
        return math.nan
    apart = abs(new.mean - old.mean)
    if apart == 0.0:
        return 1.0
    variance = old.merged(new).cautious_variance()
    if variance is None:
        return math.nan
    error = math.sqrt(variance * (1 / n + 1 / m))
    if error == 0.0:
        return 0.0
    freedom = min(n, m) - 1
    # Both tails of Student's t distribution.
    return min(_incomplete_beta(freedom / 2, 0.5, freedom / (freedom + (apart / error) ** 2)), 1.0)


def adjusted(alone: Sequence[float]) -> List[float]:
    """Adjust p-values for the number of tests (Holm 1979). NaN stays NaN and does not count."""
    order = sorted((p, at) for at, p in enumerate(alone) if not math.isnan(p))
    found, least = [math.nan] * len(alone), 0.0
    for rank, (p, at) in enumerate(order):
        least = max(least, min((len(order) - rank) * p, 1.0))
        found[at] = least
    return found
