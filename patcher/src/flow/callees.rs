//! Callees of a function, according to its code.

use std::collections::BTreeSet;
use std::ops::Range;

use super::sweep::linear;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::Control;

/// The callees of a range of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callees<'d> {
    /// The start addresses of functions of the same file.
    pub functions: BTreeSet<Svma>,
    /// The names of functions of other files, as the linkage tables state them.
    pub imported: BTreeSet<&'d str>,
    /// The number of calls whose target is known only at run time: calls through pointers and of
    /// virtual functions.
    pub indirect: usize,
}

/// The callees of the code at `range`, the main part of a function. Calls of the function itself do
/// not count. Unconditional direct jumps out of the range count, as tail calls. Empty if the file
/// has no bytes for the range.
pub fn callees<'d>(image: &Image<'d>, range: Range<Svma>) -> Callees<'d> {
    let mut found = Callees::default();
    let Some(swept) = linear(image, std::slice::from_ref(&range)) else {
        return found;
    };
    for insn in &swept.insns {
        let target = Svma(insn.target());
        match insn.control() {
            Control::Call => {}
            Control::Jump if !range.contains(&target) => {}
            Control::IndirectCall => {
                // A call through the global offset table, from code without linkage stubs.
                match insn
                    .named_word()
                    .map(Svma)
                    .and_then(|slot| image.imported_at(slot))
                {
                    Some(name) => drop(found.imported.insert(name)),
                    None => found.indirect += 1,
                }
                continue;
            }
            _ => continue,
        }
        if let Some(name) = image.plt_name(target) {
            found.imported.insert(name);
        } else if let Some(function) = image.functions().function_at(target)
            && function.range.start != range.start
        {
            found.functions.insert(function.range.start);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Folder;

    const PROGRAM: &str = r#"
        #include <stdlib.h>
        __attribute__((noinline)) int leaf(int n) { __asm__ volatile(""); return n + 1; }
        __attribute__((noinline)) int other(int n) { __asm__ volatile(""); return n * 3; }
        int (*volatile pointer)(int) = other;
        __attribute__((noinline)) int caller(int n) {
            int sum = leaf(n) + abs(atoi("7")) + pointer(n);
            if (n > 3)
                sum += caller(n - 2) * leaf(sum);
            return other(sum);
        }
        int main(int argc, char **argv) { (void)argv; return caller(argc); }
    "#;

    #[test]
    fn what_is_called_by_name_is_found_and_the_rest_is_counted() {
        for flags in [&["-O2"][..], &["-O0"], &["-O2", "-fno-plt"]] {
            let data = Folder::new().build("cc", flags, &[("calls.c", PROGRAM)]);
            let image = Image::parse(&data).unwrap();
            let named = |name: &str| image.functions().with_name(|n| n == name)[0].clone();
            let found = callees(&image, named("caller").range);
            let names: Vec<String> = found
                .functions
                .iter()
                .map(|&at| image.functions().function_at(at).unwrap().linkage)
                .collect();
            for name in ["leaf", "other"] {
                assert!(names.contains(&name.to_owned()), "{flags:?} {names:?}");
            }
            assert!(!names.contains(&"caller".to_owned()), "{names:?}");
            assert!(
                found
                    .imported
                    .iter()
                    .any(|name| name.starts_with("atoi") || *name == "strtol"),
                "{found:?}"
            );
            assert_eq!(found.indirect, 1, "{flags:?}");
        }
    }
}
