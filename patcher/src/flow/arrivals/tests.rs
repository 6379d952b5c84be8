use super::*;
use crate::oracle::{Folder, LIBC};

const PROGRAM: &str = r#"
    #include <stdlib.h>
    #define FAR __attribute__((noinline, noclone))
    FAR int leaf(int n) { __asm__ volatile(""); return n + 1; }
    FAR int other(int n) { __asm__ volatile("" ::: "memory"); return n * 3; }
    FAR int by_tail_call(int n) { __asm__ volatile(""); return leaf(n + 2); }
    FAR int by_two(int n) { __asm__ volatile(""); return by_tail_call(n + 2); }
    int (*volatile pointer)(int) = other;
    FAR int anywhere(int n) { return pointer(n); }
    FAR int by_import(int n) { __asm__ volatile(""); return abs(atoi((char *)&n)); }
    FAR int cased(int n) {
        switch (n) {
        case 1: return leaf(3) + 1; case 2: return other(4) + 2; case 3: return leaf(5) + 3;
        case 4: return other(9) * 4; case 5: return leaf(7) - 5; case 6: return other(1) - 6;
        case 7: return leaf(4) + 9; default: return 1;
        }
    }
    int main(int argc, char **argv) {
        (void)argv;
        return leaf(argc) + by_tail_call(argc) + by_two(1) + anywhere(2) + by_import(3) + cased(4);
    }
"#;

struct Built(Vec<u8>);

impl Built {
    fn image(&self) -> Image<'_> {
        Image::parse(&self.0).unwrap()
    }
}

fn start(image: &Image<'_>, name: &str) -> Svma {
    image.functions().with_name(|n| n == name)[0].range.start
}

/// The calls in a function: for each return address, the call before it.
fn calls(image: &Image<'_>, name: &str) -> Vec<CallBefore> {
    let range = image.functions().with_name(|n| n == name)[0].range.clone();
    let swept = linear(image, &[range]).unwrap();
    let calls = swept.insns.iter().filter(|insn| insn.is_call());
    calls
        .map(|insn| call_before(image, Svma(insn.end())))
        .collect()
}

#[test]
fn tail_calls_lead_on_and_calls_do_not() {
    let built = Built(Folder::new().build("gcc", &["-O2"], &[("a.c", PROGRAM)]));
    let image = built.image();
    let [leaf, other] = ["leaf", "other"].map(|name| start(&image, name));
    for name in ["by_tail_call", "by_two"] {
        let mut found = Arrivals::from(&image, start(&image, name));
        assert!(found.reach(leaf) && !found.reach(other), "{name}");
        assert!(!found.is_open() && found.slots().is_empty(), "{name}");
        assert!(found.reach(leaf), "{name}: again");
    }
    // The switch stays inside the function, and its calls return to it.
    let mut cased = Arrivals::from(&image, start(&image, "cased"));
    assert!(!cased.reach(leaf) && !cased.is_open());
    let mut anywhere = Arrivals::from(&image, start(&image, "anywhere"));
    let is_word = |&slot: &Svma| image.imported_at(slot).is_none();
    assert!(anywhere.is_open() || anywhere.slots().iter().any(is_word));
}

/// As in glibc's `__strncasecmp_evex`. There may also be no-ops after a call that does not return.
#[test]
fn a_function_runs_on_over_no_ops() {
    const ON: &str = r#"
        void one(void), two(void), three(void), four(void);
        __asm__(".text\n.p2align 4\n.globl one, two, three, four\n"
                ".type one, @function\none: mov $1, %eax\nnopl 0(%rax,%rax,1)\n.size one, . - one\n"
                ".type two, @function\ntwo: inc %eax\nret\nnop\n.size two, . - two\n"
                ".type three, @function\nthree: call abort@plt\nnop\n.size three, . - three\n"
                ".type four, @function\nfour: ret\n.size four, . - four\n");
        int main(void) { one(); two(); three(); four(); }
    "#;
    let built = Built(Folder::new().build("gcc", &["-O2"], &[("a.c", ON)]));
    let image = built.image();
    for (from, to, leads) in [
        ("one", "two", true),
        ("two", "three", false),
        ("three", "four", false),
    ] {
        let mut found = Arrivals::from(&image, start(&image, from));
        assert_eq!(found.reach(start(&image, to)), leads, "{from}");
    }
}

/// Like the loader's call of a library's finalizers: the sum of two words is not a table entry.
#[test]
fn a_tail_call_by_a_sum_leads_anywhere() {
    const SUM: &str = r#"
        struct library { void *base; long at[4]; } one;
        __attribute__((noinline)) void end(struct library *l, long *at) {
            one.base = l;
            ((void (*)(void))((char *)l->base + at[1]))();
        }
        void nothing(void) {}
        int main(void) {
            struct library l = {0};
            long at[2] = {0, (long)nothing};
            end(&l, at);
            return 0;
        }
    "#;
    let built = Built(Folder::new().build("gcc", &["-O2"], &[("a.c", SUM)]));
    let image = built.image();
    let mut found = Arrivals::from(&image, start(&image, "end"));
    assert!(found.is_open());
}

/// A thunk that replaces an indirect jump returns through an address that it has written.
#[test]
fn retpolines_lead_anywhere() {
    let bare = "-fno-asynchronous-unwind-tables";
    for flags in [
        &["-O2", "-mindirect-branch=thunk"][..],
        &["-O2", "-mindirect-branch=thunk", bare],
    ] {
        let built = Built(Folder::new().build("gcc", flags, &[("a.c", PROGRAM)]));
        let image = built.image();
        let mut found = Arrivals::from(&image, start(&image, "anywhere"));
        assert!(found.is_open(), "{flags:?}");
    }
}

/// The extent of a function without a symbol and an unwind entry is unknown.
#[test]
fn a_switch_in_unknown_code_leads_anywhere() {
    let flags = ["-O2", "-fno-asynchronous-unwind-tables"];
    let named = Built(Folder::new().build("gcc", &flags, &[("a.c", PROGRAM)]));
    let bare = [&flags[..], &["-s"]].concat();
    let stripped = Built(Folder::new().build("gcc", &bare, &[("a.c", PROGRAM)]));
    let cased = start(&named.image(), "cased");
    assert!(!Arrivals::from(&named.image(), cased).is_open());
    assert!(Arrivals::from(&stripped.image(), cased).is_open());
}

#[test]
fn linkage_stubs_lead_through_their_slots() {
    for flags in [
        &["-O2"][..],
        &["-O2", "-fcf-protection"],
        &["-O2", "-fuse-ld=gold"],
    ] {
        let built = Built(Folder::new().build("gcc", flags, &[("a.c", PROGRAM)]));
        let image = built.image();
        let stubs = calls(&image, "by_import").into_iter();
        let direct = stubs.filter_map(|call| match call {
            CallBefore::Direct(target) => Some(target),
            _ => None,
        });
        let names = direct.flat_map(|target| {
            let mut found = Arrivals::from(&image, target);
            let slots = found.slots().iter();
            let names = slots.filter_map(|&slot| image.imported_at(slot));
            names.collect::<Vec<_>>()
        });
        let names: Vec<_> = names.collect();
        let is_one = |name: &&str| name.starts_with("atoi") || *name == "strtol";
        assert_eq!(
            names.iter().filter(|name| is_one(name)).count(),
            1,
            "{flags:?} {names:?}"
        );
    }
}

#[test]
fn calls_are_known_from_their_ends() {
    let built = Built(Folder::new().build("gcc", &["-O2", "-fno-plt"], &[("a.c", PROGRAM)]));
    let image = built.image();
    let of_main = calls(&image, "main");
    for name in ["leaf", "by_tail_call", "by_two", "anywhere", "cased"] {
        let target = start(&image, name);
        assert!(
            of_main.contains(&CallBefore::Direct(target)),
            "{name} {of_main:x?}"
        );
    }
    let imported = calls(&image, "by_import").into_iter();
    let through = imported.filter(
        |call| matches!(call, CallBefore::Through(slot) if image.imported_at(*slot).is_some()),
    );
    assert_eq!(through.count(), 1);
    let inside = start(&image, "leaf").plus(1);
    assert_eq!(call_before(&image, inside), CallBefore::None);
}

/// Every call in the C library is found from its return address.
#[test]
fn every_call_of_the_c_library_is_found_from_its_end() {
    let data = std::fs::read(LIBC).unwrap();
    let image = Image::parse(&data).unwrap();
    let (mut same, mut unclear) = (0, 0);
    for function in image.functions().iter() {
        let Some(swept) = linear(&image, std::slice::from_ref(&function.range)) else {
            continue;
        };
        for insn in swept
            .insns
            .iter()
            .filter(|insn| insn.is_call() && swept.complete)
        {
            match call_before(&image, Svma(insn.end())) {
                CallBefore::Unclear => unclear += 1,
                found => {
                    assert_eq!(found, call_of(&image, insn), "{insn} at {:#x}", insn.at());
                    same += 1;
                }
            }
        }
    }
    assert!(same > 10_000 && unclear * 1000 < same, "{same} {unclear}");
}

/// The unwinder continues in the catching frame after these calls only.
#[test]
fn the_unwinder_replaces_frames_after_its_last_call() {
    let data = std::fs::read("/lib/x86_64-linux-gnu/libgcc_s.so.1").unwrap();
    let image = Image::parse(&data).unwrap();
    let replaced = |name: &str| {
        let range = image
            .functions()
            .with_name(|n| n.split('@').next() == Some(name))[0]
            .range
            .clone();
        let swept = linear(&image, &[range]).unwrap();
        let calls = swept.insns.iter().filter(|insn| insn.is_call());
        calls
            .filter(|insn| replaces_frame(&image, Svma(insn.end())))
            .count()
    };
    for name in [
        "_Unwind_RaiseException",
        "_Unwind_Resume",
        "_Unwind_ForcedUnwind",
    ] {
        assert_eq!(replaced(name), 1, "{name}");
    }
    for name in ["_Unwind_Backtrace", "_Unwind_Find_FDE", "__udivti3"] {
        assert_eq!(replaced(name), 0, "{name}");
    }
}
