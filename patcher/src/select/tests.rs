use super::{Pattern, glob};
use crate::image::Image;

#[test]
fn globs() {
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
    ] {
        assert_eq!(glob::matches(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn patterns_are_read() {
    let pattern = |text: &str| Pattern::parse(text).expect("a pattern");
    assert!(pattern("libmpi.so*!MPI_*").module_matches("libmpi.so.40"));
    assert!(!pattern("libmpi.so*!MPI_*").module_matches("libc.so.6"));
    assert!(pattern("work").module_matches("anything"));
    assert_eq!(pattern("0x401000").absolute_address(), Some(crate::Avma(0x40_1000)));
    assert!(pattern("app+0x1000").module_matches("app"));
    assert!(!pattern("ns::operator!=").has_module());
    assert!(Pattern::parse("").is_err());
    assert!(Pattern::parse("lib!").is_err());
    assert!(Pattern::parse("/(/").is_err());
    assert!(Pattern::parse("0xyz").is_err());
}

#[test]
fn selects_in_libc() {
    let data = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").expect("Debian has it");
    let image = Image::parse(&data).expect("an image");
    let select = |text: &str| Pattern::parse(text).expect("a pattern").select(&image);
    let qsort = select("qsort");
    assert_eq!(qsort.len(), 1);
    assert_eq!(qsort[0].linkage, "qsort");
    assert!(qsort[0].size() > 4);
    // An alias comes under the name that was asked for.
    assert_eq!(select("__libc_malloc")[0].linkage, "__libc_malloc");
    assert_eq!(select("malloc")[0].range, select("__libc_malloc")[0].range);
    assert!(select("no_such_function").is_empty());
    let near = Pattern::parse("qsrot").expect("a pattern").suggestions(&image, 3);
    assert!(near.contains(&"qsort".to_owned()), "{near:?}");
}
