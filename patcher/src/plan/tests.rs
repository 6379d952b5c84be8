use proptest::prelude::*;

use super::draft::Draft;
use super::sites::Sites;
use super::*;
use crate::flow::recipes;
use crate::inside::{Counter, Free, Transfer};
use crate::isa::JUMP;
use crate::looks;
use crate::oracle::Folder;

/// The number of repeated parts in the test functions.
const PARTS: usize = 20_000;

/// The maximum work for a probe point: its site, its neighbors, and the instructions that they
/// displace.
const MOST_LOOKS: usize = 150;

/// An executable with the function `large`, whose code is `body`.
fn program(body: &str) -> Vec<u8> {
    let source = format!(
        ".globl large, _start
        .type large, @function
        .type _start, @function
        large: .cfi_startproc
        {body}
        .cfi_endproc
        .size large, . - large
        .fill 64, 1, 0xcc
        _start: call large
        ret
        .size _start, . - _start
        .section .note.GNU-stack, \"\", @progbits\n"
    );
    let folder = Folder::new();
    folder.build("cc", &["-nostdlib", "-static-pie"], &[("large.s", &source)])
}

fn repeated(part: &str) -> String {
    format!(".rept {PARTS}\n{part}\n.endr\nret\n")
}

/// `count` consecutive switches of eight cases each. Control reaches the next switch from the last
/// case, or by the default if `has_default` is true.
fn switches(count: usize, has_default: bool) -> String {
    let (mut code, mut tables) = (String::new(), String::new());
    for switch in 0..count {
        if has_default {
            code += &format!("cmp $7, %edi; ja over{switch}\n");
        }
        code += &format!(
            "lea table{switch}(%rip), %rdx
            movslq (%rdx, %rdi, 4), %rax; add %rdx, %rax; jmp *%rax\n"
        );
        tables += &format!("table{switch}:\n");
        for case in 0..8 {
            code += &format!("case{switch}_{case}: mov ${case}, %eax\n");
            code += if case == 7 { "" } else { "ret\n" };
            tables += &format!(".long case{switch}_{case} - table{switch}\n");
        }
        code += &format!("over{switch}:\n");
    }
    format!("{code}ret\n.section .rodata\n{tables}.text\n")
}

/// Adjacent returns that are all targets of a jump table. Only breakpoints fit.
fn labels() -> String {
    format!(
        "lea 1f(%rip), %rdx; movslq (%rdx, %rdi, 4), %rax; add %rdx, %rax; jmp *%rax
        2: .rept {PARTS}\nret\n.endr
        .section .rodata; 1: .set place, 0
        .rept {PARTS}\n.long 2b - 1b + place\n.set place, place + 1\n.endr\n.text\n"
    )
}

/// An interpreter: each part jumps to the next through one shared table.
fn dispatches() -> String {
    format!(
        ".rept {PARTS}
        lea table(%rip), %rdx; movslq (%rdx, %rdi, 4), %rax; add %rdx, %rax; jmp *%rax
        .section .rodata; .long 1f - table; .text; 1: inc %edi
        .endr
        ret
        .section .rodata; .set table, . - 4 * {PARTS}; .text\n"
    )
}

/// Plans `large` with all its exits, then with a point at every third instruction, in a process
/// without room for puns. Returns the number of probe points, and the work for each.
fn work(body: &str) -> (usize, usize) {
    let data = program(body);
    let image = Image::parse(&data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let mut functions = image.functions().iter();
    let function = functions.find(|f| f.linkage == "large").expect("is there");
    let flow = Flow::of(&image, &context, &function).expect("has bytes");
    let points = flow.insns.iter().step_by(3).zip(0..);
    let points: Vec<(Svma, u32)> = points.map(|(insn, n)| (Svma(insn.at()), n)).collect();
    let allowed = Allowed {
        puns: false,
        ..Allowed::ALL
    };
    let (all, none) = (
        Effects {
            entry: true,
            exits: true,
        },
        Effects {
            entry: false,
            exits: false,
        },
    );
    looks::take();
    let mut count = 0;
    for (want, points) in [(all, &[][..]), (none, &points)] {
        let mut plan = plan_points(&image, &context, &function, (want, points), allowed);
        plan.allow_traps(&image, &context);
        let all = std::iter::once(&plan.entry).chain(&plan.exits);
        count += all.chain(&plan.points).count();
    }
    recipes(&image, &context, &function);
    (count, looks::take() / count)
}

/// An entry without room gets a breakpoint only if the entry is wanted.
#[test]
fn breakpoints_are_for_wanted_probe_points_alone() {
    // A jump table leads to the second instruction.
    let data = program(
        "nop; 2: dec %edi; cmp $3, %edi; ja 3f
        lea 1f(%rip), %rdx; movslq (%rdx, %rdi, 4), %rax; add %rdx, %rax; jmp *%rax
        3: ret
        .section .rodata; 1: .rept 4; .long 2b - 1b; .endr; .text",
    );
    let image = Image::parse(&data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let mut functions = image.functions().iter();
    let function = functions.find(|f| f.linkage == "large").expect("is there");
    let allowed = Allowed {
        puns: false,
        ..Allowed::ALL
    };
    for entry in [true, false] {
        let want = Effects { entry, exits: true };
        let mut plan = plan_with(
            &image,
            &context,
            &function,
            (want, Hooked::default()),
            allowed,
        );
        assert_eq!(plan.entry.outcome, Err(RefuseReason::BranchIntoWindow));
        plan.allow_traps(&image, &context);
        let mut hooked = plan.sites.iter().flat_map(|site| &site.points);
        assert_eq!(hooked.any(|p| p.effect == Effect::Entry), entry);
        assert_eq!(plan.entry.outcome.is_ok(), entry);
    }
}

/// A counter of a taken jump runs only if the jump is taken: the jump leads to it, and nothing else
/// changes. That needs a long jump whose other way is not counted there.
#[test]
fn counted_jumps_are_retargeted() {
    let far = "test %edi, %edi; jne 1f; .fill 300, 1, 0x90; ret; 1: dec %eax; ret";
    let near = "test %edi, %edi; jne 1f; xor %eax, %eax; ret; 1: dec %eax; ret";
    for (body, transfers, tactic) in [
        (far, &[Transfer::Taken][..], Tactic::Retarget),
        (far, &[Transfer::Taken, Transfer::NotTaken], Tactic::Window),
        (far, &[Transfer::NotTaken, Transfer::Taken], Tactic::Window),
        (near, &[Transfer::Taken], Tactic::Window),
    ] {
        let data = program(body);
        let image = Image::parse(&data).expect("an ELF image");
        let context = ModuleContext::new(&image);
        let mut functions = image.functions().iter();
        let function = functions.find(|f| f.linkage == "large").expect("is there");
        let at = function.range.start.plus(2);
        let points = transfers
            .iter()
            .zip(0..)
            .map(|(&transfer, number)| ProbePoint {
                at,
                effect: Effect::Count(Counter {
                    number,
                    transfer,
                    free: Free::default(),
                }),
            });
        let points: Vec<ProbePoint> = points.collect();
        let hooks = Hooked {
            points: &points,
            ..Hooked::default()
        };
        let none = Effects {
            entry: false,
            exits: false,
        };
        let plan = plan_inside(&image, &context, &function, (none, hooks), Allowed::ALL);
        assert!(
            plan.points.iter().all(|p| p.outcome.is_ok()),
            "{transfers:?}"
        );
        let [site] = &plan.sites[..] else {
            panic!("{:?}", plan.sites)
        };
        assert_eq!(site.tactic, tactic, "{transfers:?}");
        assert_eq!(site.points.len(), transfers.len());
    }
}

/// The work for a probe point is bounded, regardless of the number of points in the function.
#[test]
fn planning_a_large_function_takes_work_for_each_point_alone() {
    let near = "test %edi, %edi; jne 1f; mov $1, %eax; ret; 1:";
    let joined = "jne 1f; ret; 1:";
    let loops = "dec %edi; jne large";
    let aligned = "test %edi, %edi; jne 1f; xor %eax, %eax; ret; .p2align 4; 1:";
    let led = "dec %edi; je 2b; dec %edi; jne 1b";
    for (name, body) in [
        ("windows", repeated(near)),
        ("joined windows", repeated(joined)),
        ("loops to the entry", repeated(loops)),
        ("padding", repeated(aligned)),
        (
            "jumps into a window",
            format!("jmp 3f; 1: pop %rax; 2: ret; 3: {}", repeated(led)),
        ),
        ("jump tables", switches(PARTS / 8, true)),
        (
            "jump tables that lead to the next",
            switches(PARTS / 8, false),
        ),
        ("one jump table for all", dispatches()),
        ("labels", labels()),
    ] {
        let (points, looks) = work(&body);
        eprintln!("{name} {points} {looks}");
        assert!(points > PARTS / 2, "{name}: {points} points");
        assert!(
            looks < MOST_LOOKS,
            "{name}: {looks} looks for each of {points} points"
        );
    }
}

/// An operation on a set of sites.
#[derive(Clone, Debug)]
enum Step {
    /// Inserts a site if its bytes are free: (start, length, true for a punned jump, landing).
    Insert(u64, u64, bool, Option<u64>),
    /// Removes the site that contains the address.
    Remove(u64),
    /// Marks a state, or undoes all changes since the last mark.
    Mark { undo: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let insert = (
        0u64..200,
        1u64..12,
        any::<bool>(),
        prop::option::of(0u64..200),
    );
    let step = prop_oneof![
        8 => insert.prop_map(|(at, len, puns, landing)| Step::Insert(at, len, puns, landing)),
        2 => (0u64..200).prop_map(Step::Remove),
        2 => any::<bool>().prop_map(|undo| Step::Mark { undo }),
    ];
    prop::collection::vec(step, 0..60)
}

/// The ranges of bytes that a site uses: its window, the bytes its jump depends on, its long jump.
fn bytes(site: &Draft) -> [Range<u64>; 3] {
    let landing = site.landing.map(|at| at..at + JUMP);
    [
        site.window.clone(),
        site.depends().unwrap_or_default(),
        landing.unwrap_or_default(),
    ]
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

proptest! {
    /// Lookups by address agree with a search of all sites, after any sequence of changes and
    /// undos.
    #[test]
    fn sites_are_those_that_a_search_of_all_finds(
        steps in steps(),
        asked in prop::collection::vec((0u64..210, 1u64..12), 20),
    ) {
        let mut sites = Sites::default();
        let mut model: Vec<Draft> = Vec::new();
        let (mut mark, mut marked) = (sites.mark(), model.clone());
        for step in steps {
            match step {
                Step::Insert(at, len, puns, landing) => {
                    let draft = Draft {
                        window: at..at + if puns { len.min(JUMP - 1) } else { len },
                        tactic: if puns { Tactic::Pun } else { Tactic::Window },
                        points: Vec::new(),
                        landing: landing.filter(|_| !puns),
                        displaced: Vec::new(),
                        strays: Vec::new(),
                    };
                    let own = bytes(&draft);
                    let is_apart = !overlap(&own[0], &own[2]);
                    if is_apart && own.iter().filter(|r| !r.is_empty()).all(|r| sites.is_clear(r)) {
                        sites.insert(draft.clone());
                        model.push(draft);
                    }
                }
                Step::Remove(at) => {
                    if let Some(index) = model.iter().position(|s| s.window.contains(&at)) {
                        sites.remove(model.swap_remove(index).window.start);
                    }
                }
                Step::Mark { undo: true } => {
                    sites.roll_back(mark);
                    model.clone_from(&marked);
                }
                Step::Mark { undo: false } => (mark, marked) = (sites.mark(), model.clone()),
            }
        }
        model.sort_by_key(|s| s.window.start);
        prop_assert_eq!(sites.iter().cloned().collect::<Vec<_>>(), model.clone());
        for (at, len) in asked {
            let range = at..at + len;
            let holding = model.iter().find(|s| s.window.contains(&at));
            prop_assert_eq!(sites.holding(at), holding);
            let mut found: Vec<&Draft> = sites.overlapping(&range).collect();
            found.reverse();
            let expected = model.iter().filter(|s| overlap(&s.window, &range));
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
            let is_clear = model.iter().all(|s| bytes(s).iter().all(|r| !overlap(r, &range)));
            prop_assert_eq!(sites.is_clear(&range), is_clear);
            let landings = model.iter().map(|s| bytes(s)[2].clone());
            let mut landings: Vec<_> = landings.filter(|r| overlap(r, &range)).collect();
            landings.sort_by_key(|r| r.start);
            prop_assert_eq!(sites.landings_in(&range).collect::<Vec<_>>(), landings);
        }
    }
}
