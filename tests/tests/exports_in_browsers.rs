//! Exports in a browser: the page that ipath writes, and speedscope's own with a profile for it.

use ipath_tests::command::Run;
use ipath_tests::exported::{Exported, numbers};
use ipath_tests::place::workspace;
use ipath_tests::tools;
use std::fs;
use std::path::Path;

/// What somebody does with a page: looks, searches, sorts, zooms, opens lines, takes another metric.
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
    rows("functions")[0].onclick();
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
    let run =
        Run::new("chromium").args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    let run = run.arg(format!(
        "--user-data-dir={}",
        exported.scratch.file("browser").display()
    ));
    let shown = run
        .arg(format!("file://{}", clicked.display()))
        .run()
        .expect(0);
    let mut numbers = numbers(&shown);
    let functions = exported.profile["functions"].as_array().map_or(0, Vec::len) as u64;
    let paths = exported.profile["paths"].as_array().map_or(0, Vec::len) as u64;
    for (name, expected) in [
        ("paths", paths),
        ("functions-found", functions - 1),
        ("all-found-have-it", 1),
        ("sorted", 1),
        ("zoomed", 1),
        ("whole-again", 1),
        ("histograms", 2),
        ("place", 1),
        ("source", 1),
        ("marks", 1),
    ] {
        assert_eq!(
            numbers.remove(name),
            Some(expected),
            "{name}: {}",
            shown.report()
        );
    }
    assert_eq!(numbers, exported.totals(), "{}", shown.report());
}

/// speedscope (`programs/speedscope.js`) shows the names, and what it adds up is the total of the profile.
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
    // Of all metrics, the first that is not the count is shown, with the unit that the numbers are of.
    let all = exported.file("speedscope", &[]);
    let all = shown(&all, "browser-of-all");
    assert!(all.stdout.contains("wall (2/3)"), "{}", all.report());
    let times = all.stdout.lines().filter(|line| line.contains('\t'));
    let mut times = times.filter_map(|line| line.split('\t').nth(1));
    assert!(times.all(|time| time.contains("s (")), "{}", all.report());
}
