//! Plans for processes with user shadow stacks, in which calls must not be moved. A moved call is a
//! push and a jump, so its return address is not on the shadow stack. `--nocapture` shows the cost.

mod libraries;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use patcher::function::FunctionKind;
use patcher::image::Image;
use patcher::plan::{
    Allowed, Effects, FunctionPlan, ModuleContext, PointPlan, RefuseReason, Tactic, plan,
    plan_allowed,
};

const WANT: Effects = Effects {
    entry: true,
    exits: true,
};
const WITHOUT_CALLS: Allowed = Allowed {
    puns: true,
    moved_calls: false,
};

fn points(plan: &FunctionPlan) -> impl Iterator<Item = &PointPlan> {
    std::iter::once(&plan.entry).chain(&plan.exits)
}

/// True if the plan's sites overwrite a call.
fn moves_calls(image: &Image<'_>, plan: &FunctionPlan) -> bool {
    plan.sites.iter().any(|site| {
        let window = &site.window;
        // An instruction is moved as a whole even if only its first byte is overwritten.
        let len = (window.end.0 - window.start.0).max(15);
        let bytes = (1..=len)
            .rev()
            .find_map(|len| image.bytes(window.start, len));
        let decoder = Decoder::with_ip(
            64,
            bytes.unwrap_or_default(),
            window.start.0,
            DecoderOptions::NONE,
        );
        let moved = decoder
            .into_iter()
            .take_while(|insn| insn.ip() < window.end.0);
        let mut moved = moved.filter(|insn| {
            matches!(
                insn.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
        });
        moved.next().is_some()
    })
}

#[test]
fn no_call_is_moved_where_shadow_stacks_are() {
    for name in ["libc.so.6", "libstdc++.so.6", "libcrypto.so.3"] {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let image = Image::parse(&data).expect("an ELF image");
        let context = ModuleContext::new(&image);
        let (mut all, mut moving, mut refused, mut trapped) = (0, 0, 0, 0);
        for function in image
            .functions()
            .iter()
            .filter(|f| f.kind == FunctionKind::Code)
        {
            let free = plan(&image, &context, &function, WANT);
            let mut bound = plan_allowed(&image, &context, &function, WANT, WITHOUT_CALLS);
            assert!(!moves_calls(&image, &bound), "{name} {function:?}");
            for (free, bound) in points(&free).zip(points(&bound)) {
                match (free.outcome, bound.outcome) {
                    (Ok(_), Err(reason)) => assert_eq!(reason, RefuseReason::ShadowStack),
                    (Err(free), Err(bound)) => {
                        assert_ne!((free, bound), (free, RefuseReason::ShadowStack))
                    }
                    _ => {}
                }
            }
            let is_moving = free.refused().is_none() && moves_calls(&image, &free);
            // If no call is moved anyway, the plans are the same.
            if !moves_calls(&image, &free) {
                assert_eq!(free.sites.len(), bound.sites.len(), "{name} {function:?}");
            }
            all += 1;
            moving += usize::from(is_moving);
            if free.refused().is_none() && bound.refused().is_some() {
                refused += 1;
                bound.allow_traps(&image, &context);
                trapped += usize::from(bound.refused().is_none());
                assert!(!moves_calls(&image, &bound), "{name} {function:?}");
            }
            let is_trap = |p: &PointPlan| p.outcome == Ok(Tactic::Trap);
            assert!(points(&free).all(|p| !is_trap(p)));
        }
        println!(
            "{name}: {all} functions, {moving} with a moved call, {refused} refused without, {trapped} of them to be had by breakpoints"
        );
        assert!(moving > 0, "{name}");
    }
}
