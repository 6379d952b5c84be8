//! Symbols that do not name the first instruction of a function.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::exact::assert_output_kept;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;

/// A symbol inside an instruction of a function is refused by name, whatever else is known of that
/// function. The function's second entry is patched.
#[test]
fn symbol_inside_an_instruction() {
    for around in ["-DAROUND=0", "-DAROUND=1", "-DAROUND=2"] {
        let program = Program::new(&program_with("misplaced.c", &[around]), [""; 0]);
        let plain = program.plain().expect(0);
        let scratch = Scratch::new("misplaced");
        let file = scratch.file("p.json");
        let ours = program.under_ipath(&["lie", "inner"], "count", &file);
        assert_output_kept(&plain, &ours);
        let profile = Profile::read(&file);
        let refused: Vec<_> = profile
            .refused
            .iter()
            .map(|r| (r["name"].as_str(), r["reason"].as_str()))
            .collect();
        assert_eq!(
            refused,
            [(Some("lie"), Some("inside-instruction"))],
            "{around}"
        );
        assert_eq!(
            profile.calls("inner"),
            2000,
            "{around}: by the body and by itself"
        );
        let list = Run::ipath(["list", "--json"]).arg(&program.path).arg("lie");
        let list = list.run().expect(0).json();
        let text = list.to_string();
        assert!(text.contains("inside-instruction"), "{around}: {text}");
    }
}
