//! The pages of the documentation: their length, their links, and the names that they promise.

use ipath_tests::command::Run;
use ipath_tests::place::workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most words of README.md.
const MOST_WORDS_OF_README: usize = 1_100;
/// The most words of any other page.
const MOST_WORDS: usize = 2_000;
/// Generated figures do not count. They stand between these lines.
const FIGURES: [&str; 2] = ["<!-- Figures, ", "<!-- End of the figures. -->"];

/// Adds the paths of all files below a folder with this extension, except build results and hidden
/// folders.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "node_modules" {
                files(&path, extension, found);
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// The text of each page of the repository, by its path.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut found = Vec::new();
    files(&workspace(), "md", &mut found);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("text");
        (path, text)
    };
    found.into_iter().map(read).collect()
}

/// The pages below `docs/`.
fn docs() -> BTreeMap<PathBuf, String> {
    let folder = workspace().join("docs");
    let mut all = pages();
    all.retain(|path, _| path.starts_with(&folder));
    all
}

/// The pages about limits.
fn limits() -> BTreeMap<PathBuf, String> {
    let mut all = docs();
    all.retain(|path, _| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with("limits")
    });
    assert!(!all.is_empty(), "pages about limits");
    all
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The text outside of blocks of code.
fn without_code(text: &str) -> String {
    prose(text).flat_map(|line| [line, "\n"]).collect()
}

/// The number of words on a page outside of generated figures.
fn words(text: &str) -> usize {
    let mut is_figure = false;
    let mut number = 0;
    for line in text.lines() {
        is_figure |= line.starts_with(FIGURES[0]);
        if !is_figure {
            number += line.split_whitespace().count();
        }
        is_figure &= !line.starts_with(FIGURES[1]);
    }
    number
}

#[test]
fn pages_are_short() {
    let readme = workspace().join("README.md");
    for (path, text) in docs().into_iter().chain([(readme.clone(), read(&readme))]) {
        let most = if path == readme {
            MOST_WORDS_OF_README
        } else {
            MOST_WORDS
        };
        let number = words(&text);
        assert!(number <= most, "{}: {number} words", path.display());
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The headings of a page in order, each with its anchor as GitHub makes it.
fn headings(text: &str) -> Vec<(String, String)> {
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for line in prose(text) {
        let Some(heading) = line.strip_prefix('#') else {
            continue;
        };
        let title = heading.trim_start_matches('#').trim();
        let heading = title.to_lowercase();
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c),
        });
        let anchor: String = kept.collect();
        let mut numbered = anchor.clone();
        for number in 1.. {
            if taken.insert(numbered.clone()) {
                break;
            }
            numbered = format!("{anchor}-{number}");
        }
        found.push((title.to_owned(), numbered));
    }
    found
}

/// The anchors of a page: those of its headings, and those that it names.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors: BTreeSet<String> = headings(text).into_iter().map(|(_, a)| a).collect();
    for line in prose(text) {
        for rest in line.split("<a id=\"").skip(1) {
            let name = rest.split('"').next().expect("an anchor");
            assert!(anchors.insert(name.to_owned()), "{name} is there twice");
        }
    }
    anchors
}

/// The targets of links in prose.
fn links(text: &str) -> Vec<String> {
    let text = without_code(text);
    let ends = text.split("](").skip(1);
    let targets = ends.filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.trim().to_owned()).collect()
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for target in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = path.parent().expect("a folder");
            let leads_to = if file.is_empty() {
                path.clone()
            } else {
                folder.join(file)
            };
            let Ok(leads_to) = leads_to.canonicalize() else {
                broken.push(format!("{}: {target}", path.display()));
                continue;
            };
            let page = pages
                .iter()
                .find(|(path, _)| path.canonicalize().is_ok_and(|path| path == leads_to));
            let has_anchor = || page.is_some_and(|(_, text)| anchors(text).contains(anchor));
            if !anchor.is_empty() && !has_anchor() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_index_leads_to_every_page() {
    let index = workspace().join("docs/README.md");
    let linked: BTreeSet<PathBuf> = links(&read(&index))
        .iter()
        .map(|target| target.split('#').next().expect("a file").to_owned())
        .filter_map(|target| index.with_file_name(target).canonicalize().ok())
        .collect();
    for path in docs().keys().filter(|path| **path != index) {
        let path = path.canonicalize().expect("a page");
        assert!(linked.contains(&path), "{}", path.display());
    }
}

/// Paths in backticks that begin with a folder of the repository. Capital letters mark
/// placeholders.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    const FOLDERS: [&str; 6] = [
        "examples/",
        "fuzz/",
        "mutator/",
        "packaging/",
        "patcher/",
        "rtlib/",
    ];
    let quoted = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|path| {
        let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
        FOLDERS.iter().any(|folder| path.starts_with(folder)) && path.chars().all(is_path)
    })
}

#[test]
fn files_that_pages_name_are_there() {
    let mut missing = Vec::new();
    for (page, text) in pages() {
        let gone = paths(&text).filter(|path| !workspace().join(path).exists());
        missing.extend(gone.map(|path| format!("{}: {path}", page.display())));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The texts that `Self::Variant =>` gives in a source file.
fn names(file: &str) -> Vec<String> {
    let text = read(&workspace().join(file));
    let arms = text.split("Self::").skip(1).filter_map(|arm| {
        let (variant, rest) = arm.split_once(" => \"")?;
        let is_name = variant.chars().all(char::is_alphanumeric);
        is_name.then(|| rest.split('"').next().map(str::to_owned))?
    });
    arms.collect()
}

#[test]
fn every_reason_and_every_loss_has_an_anchor() {
    let there: BTreeSet<String> = limits().values().flat_map(|text| anchors(text)).collect();
    let reasons = names("patcher/src/plan/refuse.rs");
    assert!(reasons.len() >= 29, "{reasons:?}");
    let mut all = reasons;
    for file in [
        "rtlib/abi/src/cause.rs",
        "rtlib/abi/src/shortage.rs",
        "mutator/profile/src/profile/unseen.rs",
    ] {
        let found = names(file);
        assert!(found.len() >= 8, "{file}: {found:?}");
        all.extend(found);
    }
    // The command finds these causes, and these are the fields of the losses.
    let others = ["replaced-frame", "contradicted", "missed", "overflow"];
    let others = others.iter().chain(&["unwound", "open", "incomplete"]);
    all.extend(others.map(|name| (*name).to_owned()));
    let missing: Vec<_> = all.iter().filter(|name| !there.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// All tests as `file::name`. Tests in `foo/tests.rs` are those of `foo`.
fn tests() -> BTreeSet<String> {
    let mut sources = Vec::new();
    files(&workspace(), "rs", &mut sources);
    let mut found = BTreeSet::new();
    for path in sources {
        let folder = path.parent().and_then(Path::file_name);
        let stem = path.file_stem().expect("a name").to_string_lossy();
        let owner = match (&*stem, folder) {
            ("tests", Some(folder)) => folder.to_string_lossy(),
            _ => stem,
        };
        let text = read(&path);
        for rest in text.split("#[test]").skip(1) {
            let after = rest.split_once("fn ").map(|(_, after)| after);
            let name = after.and_then(|after| after.split(['(', '<']).next());
            found.extend(name.map(|name| format!("{owner}::{name}")));
        }
    }
    found
}

/// The title and the body of each limit on a page without code.
fn sections(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n### ").skip(1).map(|section| {
        let (title, body) = section.split_once('\n').expect("a title");
        (title, body.split("\n## ").next().expect("a body"))
    })
}

/// The paragraphs of a text, without leading white space.
fn paragraphs(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").map(str::trim_start)
}

/// True for a paragraph that lists the tests of a limit.
fn lists_tests(paragraph: &str) -> bool {
    ["Test: ", "Tests: "]
        .iter()
        .any(|start| paragraph.starts_with(start))
}

/// The names `file::name` in backticks that a paragraph about tests has.
fn named(paragraph: &str) -> impl Iterator<Item = &str> {
    let quoted = paragraph.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.contains("::"))
}

#[test]
fn every_limit_names_its_tests() {
    let there = tests();
    let mut wrong = Vec::new();
    for (path, text) in limits() {
        let page = path.file_name().expect("a name").to_string_lossy();
        let text = without_code(&text);
        for (title, body) in sections(&text) {
            let says_so = |p: &str| lists_tests(p) || p.starts_with("No test: ");
            if !paragraphs(body).any(says_so) {
                wrong.push(format!("{page}: {title}: no test is named"));
            }
        }
        for list in paragraphs(&text).filter(|p| lists_tests(p)) {
            assert!(named(list).next().is_some(), "{page}: {list}");
            let missing = named(list).filter(|name| !there.contains(*name));
            wrong.extend(missing.map(|name| format!("{page}: there is no test {name}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The rows of the index: each limit, with a link to it and the names of its tests.
fn rows() -> String {
    let mut rows = String::new();
    for (path, text) in limits() {
        let page = path.file_name().expect("a name").to_string_lossy();
        let mut limits = headings(&text).into_iter();
        let text = without_code(&text);
        for (title, body) in sections(&text) {
            let (_, anchor) = limits.find(|(t, _)| t == title.trim()).expect("a heading");
            let lists = paragraphs(body).filter(|p| lists_tests(p));
            let tests: Vec<String> = lists.flat_map(named).map(|t| format!("`{t}`")).collect();
            let tests = if tests.is_empty() {
                "none".to_owned()
            } else {
                tests.join(", ")
            };
            rows += &format!("| [{title}](../reference/{page}#{anchor}) | {tests} |\n");
        }
    }
    rows
}

/// The index of tests is generated from the limits. `UPDATE_GOLDENS=1` writes it.
#[test]
fn the_index_of_tests_is_that_of_the_limits() {
    let path = workspace().join("docs/internals/tests.md");
    let begin = "<!-- Figures, of the pages on limits -->";
    let end = FIGURES[1];
    let text = read(&path);
    let (head, _) = text.split_once(begin).expect("the beginning of the index");
    let table = format!("| limit | tests |\n| --- | --- |\n{}", rows());
    let expected = format!("{head}{begin}\n{table}{end}\n");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, &expected).expect("the page");
    }
    assert_eq!(read(&path), expected, "UPDATE_GOLDENS=1 writes it");
}

/// The long options in the first column of a table's row.
fn options(row: &str) -> impl Iterator<Item = String> {
    let column = row.trim_start_matches('|').split(" | ").next();
    let words = column.unwrap_or_default().split(['`', ' ', ',']);
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(str::to_owned)
}

/// The tables of the reference list for each command exactly the long options of its help. A table
/// follows the heading of a command, or a paragraph `For ...` that lists commands.
#[test]
fn commands_have_the_options_of_the_help() {
    let text = read(&workspace().join("docs/reference/commands.md"));
    let mut described: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut commands: Vec<String> = Vec::new();
    for paragraph in paragraphs(&text) {
        if let Some(name) = paragraph.strip_prefix("## ipath ") {
            commands = vec![name.to_owned()];
            described.entry(name.to_owned()).or_default();
        } else if paragraph.starts_with("For `") {
            let quoted = paragraph.split('`').skip(1).step_by(2);
            commands = quoted.map(str::to_owned).collect();
        }
        for row in paragraph.lines().filter(|line| line.starts_with("| `-")) {
            for command in &commands {
                let own = described.entry(command.clone()).or_default();
                own.extend(options(row));
            }
        }
    }
    let help = Run::ipath(["--help"]).run().expect(0).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let all: BTreeSet<&str> = names.filter(|name| *name != "help").collect();
    assert_eq!(all, described.keys().map(String::as_str).collect());
    for (command, described) in &described {
        let help = Run::ipath([command, "--help"]).run().expect(0).stdout;
        let lines = help.lines().map(str::trim_start);
        let stated = lines.filter(|line| line.starts_with('-')).flat_map(|line| {
            let words = line.split([' ', ',']).take(3);
            let long = words.filter(|word| word.starts_with("--") && word.len() > 2);
            long.map(str::to_owned).collect::<Vec<_>>()
        });
        let stated: BTreeSet<String> = stated.filter(|option| option != "--help").collect();
        assert_eq!(described, &stated, "{command}");
    }
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# A b\n## `--c d`: e_f\n```\n# no\n```\n## A b\n<a id=\"g\"></a>";
    let found: Vec<String> = anchors(text).into_iter().collect();
    assert_eq!(found, ["--c-d-e_f", "a-b", "a-b-1", "g"]);
}
