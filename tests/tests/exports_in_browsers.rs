//! Exports in a browser: ipath's own HTML page, and speedscope with an exported profile.

use ipath_tests::command::Run;
use ipath_tests::exported::{Exported, numbers};
use ipath_tests::lines::Counted;
use ipath_tests::place::{Scratch, workspace};
use ipath_tests::tools;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The actions of a user of a page: look, search, sort, zoom, open lines, select another metric.
const CLICKS: &str = r##"<script>
const said = [], say = (name, what) => said.push(name + " " + what);
const rows = id => [...document.querySelectorAll("#" + id + " tbody tr")];
const flames = () => [...document.querySelectorAll("#flame div")];
const width = (id, n) => parseFloat(flames().find(f => f.dataset.name === id).style.width);
const last = row => row.lastChild.textContent;
try {
    for (const [i, m] of data.metrics.entries()) {
        $("metric").value = i;
        $("metric").onchange();
        say(m.name, flames()[0].dataset.value);
    }
    $("metric").value = 1;
    $("metric").onchange();
    say("paths", document.getElementById("said").textContent.split(" ")[2]);
    $("search").value = "LEAF";
    $("search").oninput();
    say("functions-found", rows("functions").length);
    say("all-found-have-it", Number(rows("paths").length > 0 && rows("paths").every(r => last(r).includes("leaf"))));
    $("search").value = "";
    $("search").oninput();
    const calls = () => rows("functions").map(r => Number(r.firstChild.textContent.replaceAll(",", "")));
    document.querySelector("#functions th").onclick();
    const first = calls();
    document.querySelector("#functions th").onclick();
    say("sorted", Number(first[0] > first.at(-1) && calls()[0] < calls().at(-1)));
    const before = width("main");
    flames().find(f => f.dataset.name === "main").onclick();
    say("zoomed", Number(width("main") > before));
    $("reset").onclick();
    say("whole-again", Number(width("main") === before));
    const heads = [...document.querySelectorAll("#functions th")].map(th => th.textContent);
    say("percentiles", Number(["p50", "p99", "max"].every((name, i) => heads[4 + i] === name)));
    const cell = (row, i) => row.cells[i].textContent;
    say("percentiles-shown", Number(rows("functions").every(r => cell(r, 4) !== "-" && cell(r, 5) !== "-")));
    const kinds = name => new Set(flames().filter(f => f.dataset.name.startsWith(name)).map(f => f.className));
    say("measured-apart", Number(kinds("main").has("passed") && !kinds("main").has("measured") && kinds("leaf").has("measured")));
    const ofModule = f => f.style.background.match(/\d+/g).map(Number);
    const hue = f => { const [r, g, b] = ofModule(f); return [r > g, g > b, r > b].join(); };
    const [main, start] = ["main", "_start"].map(name => flames().find(f => f.dataset.name.startsWith(name)));
    const libc = flames().find(f => f.dataset.name.startsWith("__libc_start"));
    say("modules-by-colour", Number(hue(main) === hue(start) && hue(main) !== hue(libc)));
    const marker = row => getComputedStyle(row.lastChild, "::before").content.codePointAt(1);
    const opened = rows("functions")[0];
    say("shut", marker(opened));
    opened.onclick();
    say("open", marker(opened));
    say("histograms", document.querySelectorAll(".hist").length);
    const path = rows("paths").find(r => last(r).includes("main"));
    path.onclick();
    const detail = path.nextSibling.textContent;
    say("place", Number(detail.includes("many_paths.c:")));
    say("source", Number(detail.includes("walk(")));
    const text = document.body.textContent;
    say("marks", Number(["callers unknown", "1 left by a tail call"].every(mark => text.includes(mark))));
} catch (e) { say("failed", e); }
document.body.replaceChildren();
document.body.append("BEGIN\n" + said.join("\n") + "\nEND");
</script>"##;

#[test]
fn a_page_is_searched_sorted_and_zoomed() {
    let exported = Exported::new("page");
    let file = exported.file("html", &["--sources"]);
    let text = fs::read_to_string(&file).expect("a page");
    for address in ["http:", "https:", "src=", "url("] {
        assert!(!text.contains(address), "{address}");
    }
    let clicked = exported.scratch.file("clicked.html");
    fs::write(
        &clicked,
        text.replace("</body>", &format!("{CLICKS}</body>")),
    )
    .expect("own folder");
    let mut numbers = shown_in_chromium(&exported.scratch, &clicked);
    let functions = exported.profile["functions"].as_array().map_or(0, Vec::len) as u64;
    let paths = exported.profile["paths"].as_array().map_or(0, Vec::len) as u64;
    for (name, expected) in [
        ("paths", paths),
        ("functions-found", functions - 1),
        ("all-found-have-it", 1),
        ("sorted", 1),
        ("zoomed", 1),
        ("whole-again", 1),
        ("percentiles", 1),
        ("percentiles-shown", 1),
        ("measured-apart", 1),
        ("modules-by-colour", 1),
        ("shut", 0x25b8),
        ("open", 0x25be),
        ("histograms", 2),
        ("place", 1),
        ("source", 1),
        ("marks", 1),
    ] {
        assert_eq!(numbers.remove(name), Some(expected), "{name}: {numbers:?}");
    }
    assert_eq!(numbers, exported.totals());
}

/// A look at the counted functions of a page: the counts of source lines, and the bars.
const LOOKS_INSIDE: &str = r##"<script>
const said = [], say = (name, what) => said.push(name + " " + what);
const boxes = () => [...document.querySelectorAll("#inside details")];
const rows = kind => [...document.querySelectorAll("#inside tr." + kind)];
const texts = kind => rows(kind).map(row => row.lastChild.textContent.trim());
try {
    for (const row of rows("line")) {
        const count = row.firstChild.textContent.replaceAll(",", "");
        if (count) say(row.lastChild.textContent.trim().split(" ")[0], count);
    }
    say("functions", boxes().length);
    say("opened", boxes().filter(box => box.open).length);
    say("instructions", texts("instruction").filter(text => text.startsWith("0x")).length);
    say("calls", texts("instruction").filter(text => text.includes("<leaves>")).length);
    say("texts", texts("line").filter(text => text.includes("own[__LINE__]++;")).length);
    say("headers", texts("block").filter(text => text.includes("header of loop")).length);
    const [full, part] = ["100.0 %", "71.4 %"].map(share => rows("edge").find(row => row.cells[1].textContent === share));
    const wide = row => row.querySelector(".bar").getBoundingClientRect().width;
    say("bars", Number(Math.abs(wide(part) / wide(full) - 0.714) < 0.01));
    $("search").value = "nothing";
    $("search").oninput();
    say("found", boxes().length);
} catch (e) { say("failed", e); }
document.body.replaceChildren();
document.body.append("BEGIN\n" + said.join("\n") + "\nEND");
</script>"##;

/// The counted functions of a page have the counts of gcov.
#[test]
fn a_page_shows_the_counts_of_lines() {
    let counted = Counted::new("page-inside", &["-O0"]);
    let by_gcov = counted.by_gcov();
    let page = counted.scratch.file("page.html");
    for (options, has_texts) in [(&[][..], false), (&["--sources"], true)] {
        let run = Run::ipath(["export", "--to", "html"]).arg(&counted.file);
        run.arg("-o").arg(&page).args(options).run().expect(0);
        let text = fs::read_to_string(&page).expect("a page");
        let text = text.replace("</body>", &format!("{LOOKS_INSIDE}</body>"));
        fs::write(&page, text).expect("own folder");
        let mut numbers = shown_in_chromium(&counted.scratch, &page);
        for (line, count) in &by_gcov {
            assert_eq!(numbers.remove(line), Some(*count), "{line}: {numbers:?}");
        }
        for (name, expected) in [
            ("functions", 1),
            ("opened", 1),
            ("calls", 1),
            ("headers", 2),
            ("bars", 1),
            ("found", 0),
        ] {
            assert_eq!(numbers.remove(name), Some(expected), "{name}: {numbers:?}");
        }
        assert!(numbers["instructions"] > 50, "{numbers:?}");
        assert_eq!(numbers["texts"] > 0, has_texts, "{numbers:?}");
    }
}

/// The numbers that the script in a file prints when a browser opens it.
fn shown_in_chromium(scratch: &Scratch, file: &Path) -> BTreeMap<String, u64> {
    let run =
        Run::new("chromium").args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    let browser = scratch.file("browser");
    let run = run.arg(format!("--user-data-dir={}", browser.display()));
    let run = run.args(["--window-size=900,700"]);
    let shown = run.arg(format!("file://{}", file.display())).run();
    let numbers = numbers(&shown);
    println!("{}", shown.report());
    numbers
}

/// The actions of a user of a flame graph: look, make the window smaller, zoom, search.
const CLICKS_ON_FLAMES: &str = r##"<script><![CDATA[
const found = [], tell = (name, what) => found.push(name + " " + Math.round(what));
try {
    const widest = name => frames.filter(f => f.name === name).sort((a, b) => b.wide - a.wide)[0];
    const seen = () => frames.filter(f => f.g.style.display !== "none");
    const wide = f => f.rect.getBoundingClientRect().width;
    const click = e => e.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    const main = widest("main"), lowest = Math.max(...frames.map(f => f.y));
    const whole = frames.filter(f => f.y === lowest).reduce((sum, f) => sum + wide(f), 0);
    tell("fits", Math.abs(whole - (innerWidth - 20)) < 25);
    const within = f => f.left >= main.left - 1e-6 && f.left + f.wide <= main.left + main.wide + 1e-6;
    const leaves = frames.filter(f => f.name === "leaf" && within(f));
    const leaf = leaves.sort((a, b) => wide(a) - wide(b))[0];
    const [before, number] = [wide(leaf), seen().length];
    click(leaf.g);
    tell("zoomed", wide(leaf) > 2 * before && Math.abs(wide(leaf) - wide(main)) < 1);
    tell("fewer", seen().length < number && seen().includes(main));
    tell("text", leaf.text.textContent === "leaf");
    click(document.getElementById("whole"));
    tell("whole-again", wide(leaf) === before && seen().length === number);
    window.prompt = () => "LEAF";
    const colour = leaf.rect.getAttribute("fill");
    click(said);
    tell("found", frames.every(f => (f.rect.getAttribute("fill") === "rgb(230,0,230)") === (f.name.startsWith("leaf"))));
    tell("told", said.textContent.startsWith('"leaf": '));
    click(said);
    tell("cleared", leaf.rect.getAttribute("fill") === colour && said.textContent === "Search");
} catch (e) { found.push("failed " + e); }
root.replaceChildren();
root.append("BEGIN\n" + found.join("\n") + "\nEND");
]]></script></svg>"##;

#[test]
fn a_flame_graph_is_zoomed_and_searched() {
    let exported = Exported::new("flames");
    let file = exported.file("flamegraph", &["--metric", "count"]);
    let text = fs::read_to_string(&file).expect("a picture");
    let clicked = exported.scratch.file("clicked.svg");
    let (body, _) = text.rsplit_once("</svg>").expect("an end");
    fs::write(&clicked, format!("{body}{CLICKS_ON_FLAMES}")).expect("own folder");
    let mut numbers = shown_in_chromium(&exported.scratch, &clicked);
    for name in [
        "fits",
        "zoomed",
        "fewer",
        "text",
        "whole-again",
        "found",
        "told",
        "cleared",
    ] {
        assert_eq!(numbers.remove(name), Some(1), "{name}: {numbers:?}");
    }
    // Modules differ in color, and so do measured functions and their callers.
    let colours = |name: &str| -> BTreeSet<&str> {
        let start = format!("<g data-name=\"{name}");
        let frames = text.lines().filter(|line| line.starts_with(&start));
        let fills = frames.filter_map(|line| line.split("fill=\"").nth(1)?.split('"').next());
        fills.collect()
    };
    let (main, libc) = (colours("main\""), colours("__libc_start"));
    assert!(main.len() == 1 && !libc.is_empty(), "{main:?} {libc:?}");
    assert!(main.is_disjoint(&libc), "{main:?} {libc:?}");
    assert!(
        text.contains(", in libc.so.6</title>"),
        "no module is named"
    );
    assert!(text.contains("pale: passed through"), "no legend");
}

/// speedscope (`programs/speedscope.js`) shows the names, and its sum is the total of the profile.
#[test]
fn speedscope_shows_the_names_and_the_total() {
    let exported = Exported::new("speedscope-page");
    let pages = tools::node_modules().join("speedscope/dist/release");
    let shown = |file: &Path, browser: &str| {
        let run = Run::new("node").arg(workspace().join("tests/programs/speedscope.js"));
        let run = run
            .arg(&pages)
            .arg(file)
            .arg(exported.scratch.file(browser));
        run.run().expect(0)
    };
    let counts = exported.file("speedscope", &["--metric", "count"]);
    let shown_counts = shown(&counts, "browser-of-counts");
    let number = |cell: &str| {
        let digits = cell.split(' ').next().unwrap_or_default().replace(',', "");
        digits.parse::<u64>().expect("a number of calls")
    };
    let rows = shown_counts.stdout.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, total, own] = cells[..] else {
            return None;
        };
        Some((name.to_owned(), number(total), number(own)))
    });
    let rows: Vec<_> = rows.collect();
    let total = exported.total("count");
    let own: u64 = rows.iter().map(|(_, _, own)| own).sum();
    assert_eq!(own, total, "{}", shown_counts.report());
    let of = |name: &str| rows.iter().find(|(n, _, _)| n == name).map(|(_, n, _)| *n);
    assert_eq!(of("_start"), Some(total), "{}", shown_counts.report());
    // One path is incomplete.
    assert!(
        of("[callers unknown]") > Some(0),
        "{}",
        shown_counts.report()
    );
    for name in ["walk", "leaf"] {
        assert!(of(name) > Some(0), "{name}: {}", shown_counts.report());
    }
    // With all metrics, the first one that is not the count is shown, in its own unit.
    let all = exported.file("speedscope", &[]);
    let all = shown(&all, "browser-of-all");
    assert!(all.stdout.contains("wall (2/3)"), "{}", all.report());
    let times = all.stdout.lines().filter(|line| line.contains('\t'));
    let mut times = times.filter_map(|line| line.split('\t').nth(1));
    assert!(times.all(|time| time.contains("s (")), "{}", all.report());
}
