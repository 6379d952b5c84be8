"""Plots of profiles with matplotlib (``pip install ipath-profile[plot]``)."""

from __future__ import annotations

import textwrap
from typing import Optional

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from .profile import Profile


#: The maximum number of characters on one line of a label.
LETTERS = 72


def paths(profile: Profile, metric: Optional[str] = None, limit: int = 20, axes: Optional[Axes] = None) -> Axes:
    """Draw a horizontal bar for each of the costliest call paths.

    A label names the function and its two nearest callers.

    Parameters
    ----------
    profile : Profile
        The profile to draw.
    metric : str, optional
        The length of a bar is the path's sum of this metric, in its unit. By default the number of
        calls.
    limit : int
        The maximum number of bars.
    axes : matplotlib.axes.Axes, optional
        The axes to draw on. By default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the bars, costliest path at the top.

    Raises
    ------
    ProfileError
        The profile does not have `metric`.
    """
    table = profile.paths(metric).head(limit)[::-1]
    column = "count" if metric is None else f"{metric}_sum"
    names = [" < ".join((f, *stack[:2])) for f, stack in zip(table["function"], table["stack"])]
    # Wrap names instead of cutting them.
    names = ["\n".join(textwrap.wrap(name, LETTERS)) for name in names]
    lines = sum(name.count("\n") + 1 for name in names)
    axes = axes or plt.subplots(figsize=(12, 0.3 * lines + 1), layout="constrained")[1]
    axes.barh(range(len(table)), table[column].astype(float))
    axes.set_yticks(range(len(table)), labels=names)
    axes.set_xlabel(f"{metric or 'count'} [{profile.units[metric or 'count']}]")
    return axes


def histogram(profile: Profile, path: int, metric: str = "wall", axes: Optional[Axes] = None) -> Axes:
    """Draw the distribution of the values of a path.

    The axis is logarithmic above 1, or linear if there are negative values.

    Parameters
    ----------
    profile : Profile
        The profile to draw.
    path : int
        The index of the path in the file, as in :meth:`Profile.paths`.
    metric : str
        The metric whose values are drawn, in its unit.
    axes : matplotlib.axes.Axes, optional
        The axes to draw on. By default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with one bar per bucket. The height of a bar is a number of calls.

    Raises
    ------
    ProfileError
        The profile does not have `metric`.
    IndexError
        There is no such path.
    """
    buckets = profile.histogram(path, metric)
    axes = axes or plt.subplots()[1]
    widths = buckets["high"] - buckets["low"]
    axes.bar(buckets["low"], buckets["count"], width=widths, align="edge", edgecolor="white")
    if not (buckets["low"] < 0).any():
        axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel(f"{metric} [{profile.units[metric]}]")
    axes.set_ylabel("calls")
    return axes
