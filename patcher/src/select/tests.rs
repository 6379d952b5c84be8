use super::glob::Glob;
use super::{Pattern, PatternError};
use crate::function::Function;
use crate::image::Image;
use crate::oracle::{self, Folder, LIBC};

#[test]
fn globs_match_whole_names() {
    for (pattern, text, expected) in [
        ("MPI_*", "MPI_Wait", true),
        ("MPI_*", "PMPI_Wait", false),
        ("*it", "MPI_Wait", true),
        ("M?I_*a?t", "MPI_Wait", true),
        ("*a*b*", "xxaxxbxx", true),
        ("*a*b", "xxaxxbxx", false),
        ("", "", true),
        ("*", "", true),
        ("?", "", false),
        ("f?o", "f\u{fc}o", true),
        ("operator[]*", "operator[]", true),
        ("main.f[...]*", "main.f[...].func1", true),
        ("a.*", "abc", false),
        ("a*", "a\nb", true),
        ("a*b", "a*b", true),
    ] {
        let glob = Glob::new(pattern).expect("short");
        assert_eq!(glob.matches(text), expected, "{pattern} {text}");
    }
    assert!(matches!(
        Pattern::parse(&"a?".repeat(1 << 18)),
        Err(PatternError::Glob { .. })
    ));
}

#[test]
fn patterns_are_read() {
    let pattern = |text: &str| Pattern::parse(text).expect("a pattern");
    assert!(pattern("libmpi.so*!MPI_*").module_matches("libmpi.so.40"));
    assert!(!pattern("libmpi.so*!MPI_*").module_matches("libc.so.6"));
    assert!(pattern("work").module_matches("anything"));
    assert_eq!(
        pattern("0x401000").absolute_address(),
        Some(crate::Avma(0x40_1000))
    );
    assert!(pattern("app+0x1000").module_matches("app"));
    assert!(!pattern("ns::operator!=").has_module());
    assert!(Pattern::parse("").is_err());
    assert!(Pattern::parse("lib!").is_err());
    assert!(Pattern::parse("/(/").is_err());
    assert!(Pattern::parse("0xyz").is_err());
}

#[test]
fn selects_in_libc() {
    let data = std::fs::read(LIBC).expect("a C library");
    let image = Image::parse(&data).expect("an image");
    let select = |text: &str| {
        Pattern::parse(text)
            .expect("a pattern")
            .select(&image, "app")
    };
    let qsort = select("qsort");
    assert_eq!(qsort.len(), 1);
    assert_eq!(qsort[0].linkage, "qsort");
    assert!(qsort[0].size() > 4);
    // The function is returned under the alias that was requested.
    assert_eq!(select("__libc_malloc")[0].linkage, "__libc_malloc");
    assert_eq!(select("malloc")[0].range, select("__libc_malloc")[0].range);
    assert!(select("no_such_function").is_empty());
    let near = Pattern::parse("qsrot")
        .expect("a pattern")
        .suggestions(&image, 3);
    assert!(near.iter().any(|near| near.name == "qsort"), "{near:?}");
}

/// The linkage names that a pattern selects.
fn selected(data: &[u8], text: &str) -> Vec<String> {
    let image = Image::parse(data).expect("an image");
    let found = Pattern::parse(text)
        .expect("a pattern")
        .select(&image, "app");
    assert!(found.is_sorted_by_key(|f| f.range.start));
    let mut names: Vec<String> = found.into_iter().map(|f| f.linkage).collect();
    names.sort_unstable();
    names
}

#[test]
fn cpp_names_select_all_overloads_and_nothing_else() {
    let data = Folder::new().build("c++", &["-O2"], &[oracle::CPP]);
    let int = "_ZN2ns4workEi";
    let text = "_ZN2ns4workEPKc";
    let hidden = "_ZN12_GLOBAL__N_16hiddenEi";
    let twice = ["_ZN2ns9templatedIdEET_S1_", "_ZN2ns9templatedIiEET_S1_"];
    for (pattern, expected) in [
        // The last segment of a path is not enough.
        ("work", &["_Z4worki"][..]),
        ("ns::work", &[text, int]),
        (int, &[int]),
        ("ns::work(int)", &[int]),
        ("ns::work(char const*)", &[text]),
        ("ns::work(long)", &[]),
        ("ns::templated<int>", &twice[1..]),
        ("ns::templated<int>(int)", &twice[1..]),
        ("int ns::templated<int>( int )", &twice[1..]),
        ("ns::templated", &[]),
        ("ns::templated<*", &twice),
        ("ns::templated*", &twice),
        ("ns::w?rk", &[text, int]),
        ("ns::w?rk(int)", &[int]),
        ("*work(int)", &["_Z4worki", int]),
        ("*::work(char const*)", &[text]),
        ("*::work(*)", &[text, int]),
        ("*templated<int>(int)", &twice[1..]),
        (r"/ns::work\(int\)$/", &[int]),
        (r"/work\(int\)$/", &["_Z4worki", int]),
        (r"/^int ns::templated.*\(int\)$/", &twice[1..]),
        (r"/^ns::templated.*[(]int\)$/", &twice[1..]),
        // Parameters are matched only if the expression has a parenthesis for them.
        ("/const/", &[]),
        ("*::work", &[text, int]),
        ("/^ns::(work|templated<int>)$/", &[text, int, twice[1]]),
        ("/work$/", &["_Z4worki", text, int]),
        // Letters of the mangling are not part of a name.
        ("/4work/", &[]),
        ("*4work*", &[]),
        ("/^_Z4work/", &["_Z4worki"]),
        ("_ZN2ns4work*", &[text, int]),
        ("(anonymous namespace)::hidden", &[hidden]),
        ("(anonymous namespace)::*", &[hidden]),
        ("ns::A::operator()", &["_ZNK2ns1AclEi"]),
        ("ns::A::operator()(int) const", &["_ZNK2ns1AclEi"]),
        ("ns::A::operator*=", &["_ZN2ns1AmLEi"]),
        ("ns::A::get", &["_ZNK2ns1A3getEv"]),
        ("ns::A::~A", &["_ZN2ns1AD1Ev"]),
        ("ns::A::A", &["_ZN2ns1AC1Ev"]),
        ("ns::A", &[]),
    ] {
        assert_eq!(selected(&data, pattern), expected, "{pattern}");
    }
}

#[test]
fn c_names_select_by_linkage_name() {
    let data = Folder::new().build("cc", &["-O2"], &oracle::C);
    assert_eq!(selected(&data, "twice"), ["twice", "twice"]);
    assert_eq!(
        selected(&data, "tw*"),
        ["twice", "twice"],
        "without the cold parts"
    );
    assert_eq!(selected(&data, "weak_name"), ["weak_name"]);
    assert_eq!(selected(&data, "*_name"), ["global_name"]);
    assert!(
        selected(&data, "cloned").is_empty(),
        "a clone has a name of its own"
    );
    assert_eq!(selected(&data, "cloned.*").len(), 1);
    assert_eq!(selected(&data, "app!rare"), ["rare"]);
}

#[test]
fn an_address_selects_the_function_around_it() {
    let data = Folder::new().build("cc", &["-O2"], &oracle::C);
    let image = Image::parse(&data).expect("an image");
    let twice = Pattern::parse("twice")
        .expect("a pattern")
        .select(&image, "app");
    for function in &twice {
        for at in [
            function.range.start.plus(1),
            function.cold[0].start,
            function.cold[0].start.plus(2),
        ] {
            for text in [format!("{at}"), format!("app+{at}"), format!("app!{at}")] {
                let found = Pattern::parse(&text)
                    .expect("a pattern")
                    .select(&image, "app");
                assert_eq!(found, std::slice::from_ref(function), "{text}");
            }
        }
    }
    assert!(
        Pattern::parse("0x3")
            .expect("a pattern")
            .select(&image, "app")
            .is_empty()
    );
}

/// Not inlined, so that the program has a function of this name.
#[test]
#[inline(never)]
fn rust_names_come_without_their_hash() {
    let this = std::env::current_exe()
        .and_then(std::fs::read)
        .expect("this program");
    let image = Image::parse(&this).expect("an image");
    // The compiler does not see which closure is called, so it keeps the function.
    let select: &dyn Fn(&str) -> Vec<Function> = &|text| {
        Pattern::parse(text)
            .expect("a pattern")
            .select(&image, "app")
    };
    let select = std::hint::black_box(select);
    let found = select("patcher::select::tests::rust_names_come_without_their_hash");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_ne!(found[0].name(), found[0].linkage);
    let found = select("patcher::select::tests::rust_names*");
    assert!(
        found
            .iter()
            .any(|f| f.name().contains("{{closure}}") || f.name().contains("{closure#"))
    );
}
