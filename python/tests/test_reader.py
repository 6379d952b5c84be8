"""Tables, trees, plots and comparisons against the contents of the file."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any

import ipath_profile
import matplotlib
import pandas as pd
import pytest
from conftest import profile, timer, written
from ipath_profile import Profile, ProfileError, diff, load

matplotlib.use("Agg")


def row(table: pd.DataFrame, *stack: str) -> "pd.Series[Any]":
    """The only row with this stack."""
    (found,) = (i for i, of in table["stack"].items() if of == stack)
    return table.loc[found]


def test_tables_have_every_number() -> None:
    read = Profile(profile())
    functions = read.functions().set_index("linkage")
    assert functions.loc["work", "count"] == 1010
    assert functions.loc["work", "wall_sum"] == 1_540_000
    assert functions.loc["work", "module"] == "app"
    paths = read.paths("wall")
    assert list(paths.index) == [0, 1, 2]
    assert paths["stack"][0] == ("helper", "fast", "main")
    assert read.paths(inlined=False)["stack"][0] == ("fast", "main")
    assert paths["stack"][2] == ("+0x77",)
    assert paths["complete"].tolist() == [True, True, False]
    assert (read.labels, read.elapsed_ns, read.is_whole()) == ({"rank": "3"}, 5_000_000_000, False)
    frames = read.stack(0)
    assert [(f.function, f.file, f.line, f.inlined) for f in frames[:2]] == [
        ("helper", "app.h", 3, True),
        ("fast", "app.c", 12, False),
    ]


def test_a_metric_that_is_not_there_is_refused() -> None:
    with pytest.raises(ProfileError, match="no metric 'cpu': there are wall"):
        Profile(profile()).paths("cpu")
    with pytest.raises(ProfileError, match="no function 'wrk'"):
        Profile(profile()).tree("wrk")


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for text, cause in [
        ("", "not a profile"),
        ("{}", "no schema"),
        ("[1]", "no schema"),
        ('{"schema": "ipath-profile/2"}', "the schema 'ipath-profile/2'"),
        ('{"schema": "ipath-profile/1"}', "not a whole profile"),
    ]:
        file.write_text(text)
        with pytest.raises(ProfileError, match=cause):
            load(file)


def test_histograms_have_their_ends() -> None:
    data = profile()
    wall = data["paths"][0]["metrics"]["wall"]
    wall["hist"], wall["hist_negative"] = [[0, 7], [10, 3]], [[0, 1], [2, 5]]
    buckets = Profile(data).histogram(0)
    expected = [(-7, -3, 5), (-1, 0, 1), (0, 2, 7), (1024, 2048, 3)]
    assert list(buckets.itertuples(index=False, name=None)) == expected


def test_trees_add_up() -> None:
    read = Profile(profile())
    tree = read.tree(metric="wall")
    assert (tree.calls, tree.value) == (1014, 1_540_008)
    work = tree.children["work()"]
    assert {name: child.value for name, child in work.children.items()} == {"helper": 1_500_000, "slow": 40_000}
    down = read.tree("work", top_down=True)
    assert list(down.children) == ["main"] and down.children["main"].calls == 1010
    assert list(down.children["main"].children) == ["fast", "slow"]
    lines = tree.text().splitlines()
    assert lines[0].split() == ["100.0", "%", "1014", "all"]
    assert not any("rest" in line for line in lines), "less than 1 % is left out"
    unknown = read.tree("rest").children["rest()"].children["+0x77"]
    assert list(unknown.children) == ["[callers unknown]"]
    data = profile()
    incomplete = next(path for path in data["paths"] if not path["complete"])
    incomplete["stack"] = []
    beyond = Profile(data).tree("rest").children["rest()"]
    assert list(beyond.children) == ["[callers unknown: --max-paths reached; see --collapse-recursion]"]


def test_a_path_that_has_become_slower_is_told() -> None:
    def spread(each: int) -> Profile:
        rng = random.Random(1)
        data = profile()
        values = [int(rng.lognormvariate(math.log(each), 0.4)) for _ in range(10_000)]
        wall = timer(0, 1)
        counts = {k: 0 for k in range(32)}
        for value in values:
            counts[max(value, 1).bit_length() - 1] += 1
        wall["sum"], wall["hist"] = sum(values), [[k, n] for k, n in counts.items() if n]
        data["paths"][0]["metrics"] = {"count": len(values), "wall": wall}
        return Profile(data)

    same = diff(spread(1000), spread(1000))
    assert row(same, "helper", "fast", "main")["p_value"] == 1
    slower = diff(spread(1000), spread(1050))
    found = row(slower, "helper", "fast", "main")
    assert found["ratio"] == pytest.approx(1.05, rel=0.01)
    assert found["p_value_alone"] < 0.001
    assert found["p_value_alone"] <= found["p_value"] <= 3 * found["p_value_alone"]
    assert row(slower, "slow", "main")["ratio"] == 1


def test_paths_of_one_side_alone_are_shown() -> None:
    data = profile()
    del data["paths"][1]
    found = row(diff(Profile(data), Profile(profile())), "slow", "main")
    assert math.isnan(found["old_count"])
    assert found["new_count"] == 10


def test_functions_that_one_side_lacks_are_not_new() -> None:
    data = profile()
    index = data["paths"][1]["function"]
    data["paths"] = [path for path in data["paths"] if path["function"] != index]
    called = row(diff(Profile(data), Profile(profile())), "slow", "main")
    assert bool(called["old_measured"]) and bool(called["new_measured"])
    lacked = data["functions"][index]
    lacked["name"], lacked["linkage"], lacked["address"] = "another", "another", 0x7777
    table = diff(Profile(data), Profile(profile()))
    found = row(table, "slow", "main")
    assert math.isnan(found["old_count"])
    assert not found["old_measured"] and found["new_measured"]
    assert not table["old_measured"].iloc[-1] and table["old_measured"].iloc[0]


def test_profiles_without_the_metric_cannot_be_compared() -> None:
    data = profile()
    data["metrics"] = [m for m in data["metrics"] if m["name"] != "wall"]
    for old, new in [(data, profile()), (profile(), data), (data, data)]:
        with pytest.raises(ProfileError, match="no metric 'wall'"):
            diff(Profile(old), Profile(new), "wall")


def test_numbers_of_calls_are_compared_alone() -> None:
    data = profile()
    last = data["paths"][-1]["metrics"]
    last["count"] += 1_000_000
    table = diff(Profile(profile()), Profile(data), "count")
    assert "new_sum" not in table
    first = table.iloc[0]
    assert first["new_count"] - first["old_count"] == 1_000_000


def test_plots_are_drawn(tmp_path: Path) -> None:
    from ipath_profile import plot

    read = Profile(profile())
    bars = plot.paths(read, "wall")
    assert len(bars.patches) == 3 and "wall [ns]" in bars.get_xlabel()
    assert len(plot.histogram(read, 0).patches) == 1
    bars.figure.savefig(tmp_path / "paths.png")  # type: ignore[union-attr]
    assert os.path.getsize(tmp_path / "paths.png") > 1000


def test_names_are_demangled_and_whole() -> None:
    from ipath_profile import plot

    data = profile()
    data["frames"][1]["function"] = "_ZN4shop5cache8LruCacheISt6vectorIiSaIiEEE3getERKS3_"
    read = Profile(data)
    name = "shop::cache::LruCache<std::vector<int, std::allocator<int> > >::get("
    assert read.stack(1)[0].function.startswith(name)
    assert read.stack(1)[0].linkage.startswith("_ZN4shop")
    axes = plot.paths(read, "wall")
    axes.figure.canvas.draw()
    labels = axes.get_yticklabels()
    assert any(name.split("::get")[0] in label.get_text().replace("\n", " ") for label in labels)
    for label in labels:
        assert label.get_window_extent().x0 >= 0


def test_there_are_real_profiles() -> None:
    """Guards against running the following tests without any profile."""
    assert written(), "IPATH_PROFILES names no folder with profiles"


def test_sums_of_paths_are_the_totals_of_their_functions(real: Path) -> None:
    read = ipath_profile.load(real)
    raw = json.loads(real.read_text())
    paths, functions = read.paths(), read.functions()
    assert len(paths) == len(raw["paths"]) > 0
    for index, of in enumerate(raw["functions"]):
        own = [i for i, path in enumerate(raw["paths"]) if path["function"] == index]
        assert paths.loc[own, "count"].sum() == functions["count"][index] == of["totals"]["count"]
        for metric in read.metrics:
            if metric in of["totals"] and of["totals"]["count"]:
                assert paths.loc[own, f"{metric}_sum"].sum() == of["totals"][metric]["sum"]
    assert read.tree().calls == functions["count"].sum()
    same = diff(read, read)
    assert (same["p_value"].dropna() == 1).all()
    counted = same["old_count"] == same["new_count"]
    assert counted.all()
