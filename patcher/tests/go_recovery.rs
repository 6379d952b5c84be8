//! Go functions that recover from panics, with code at the end that only the runtime continues at.

mod program;

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeAssembler, *};
use patcher::image::Image;
use patcher::plan::{Effects, FunctionPlan, ModuleContext, plan};
use program::TEXT;

const DEFERRETURN: &str = "runtime.deferreturn";

/// The bytes between a function's last return and the call at which it continues.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    Padding,
    /// Unreachable code that falls through into the call.
    Code,
    /// An unreachable jump to the call.
    Jump,
    /// A byte that is not an instruction.
    Data,
}

/// A program with a function `main.f`, which calls the next function.
struct Program {
    file: Vec<u8>,
    /// The addresses of the call and the return that only the runtime reaches.
    tail: (u64, u64),
}

type Assembled = Result<(), IcedError>;

fn program(begins: fn(&mut CodeAssembler) -> Assembled, between: Between, callee: &str) -> Program {
    assembled(begins, between, callee).expect("encodable")
}

fn assembled(
    begins: fn(&mut CodeAssembler) -> Assembled,
    between: Between,
    callee: &str,
) -> Result<Program, IcedError> {
    let mut code = CodeAssembler::new(64)?;
    let mut tail = code.create_label();
    let mut ret = code.create_label();
    let mut called = code.create_label();
    begins(&mut code)?;
    match between {
        Between::Nothing => {}
        Between::Padding => code.nop_1(dword_ptr(rax))?,
        Between::Code => code.xor(eax, eax)?,
        Between::Jump => code.jmp(tail)?,
        Between::Data => code.db(&[0x06])?,
    }
    code.set_label(&mut tail)?;
    code.call(called)?;
    code.add(rsp, 40)?;
    code.set_label(&mut ret)?;
    code.ret()?;
    code.set_label(&mut called)?;
    code.ret()?;
    let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let assembled = code.assemble_options(TEXT, options)?;
    let callee_at = assembled.label_ip(&called)?;
    let symbols = [("main.f", TEXT, callee_at - TEXT), (callee, callee_at, 1)];
    Ok(Program {
        file: program::elf(&assembled.inner.code_buffer, &symbols),
        tail: (assembled.label_ip(&tail)?, assembled.label_ip(&ret)?),
    })
}

fn plan_of(program: &Program) -> FunctionPlan {
    let image = Image::parse(&program.file).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let function = image
        .functions()
        .with_name(|name| name == "main.f")
        .remove(0);
    let want = Effects {
        entry: true,
        exits: true,
    };
    plan(&image, &context, &function, want)
}

fn is_exit(program: &Program) -> bool {
    let exits = plan_of(program).exits;
    exits.iter().any(|exit| exit.point.at.0 == program.tail.1)
}

fn with_frame(code: &mut CodeAssembler) -> Assembled {
    code.sub(rsp, 40)?;
    code.call(rax)?;
    code.add(rsp, 40)?;
    code.ret()
}

#[test]
fn what_recovers_returns_after_its_code() {
    for between in [Between::Nothing, Between::Padding] {
        for name in [DEFERRETURN, "runtime.deferreturn.abi0"] {
            let program = program(with_frame, between, name);
            assert!(is_exit(&program), "{between:?} {name}");
            assert_eq!(plan_of(&program).refused(), None);
            assert_eq!(plan_of(&program).exits.len(), 2);
        }
    }
}

#[test]
fn other_code_that_nothing_reaches_is_left_alone() {
    for between in [Between::Nothing, Between::Padding] {
        assert!(!is_exit(&program(with_frame, between, "deferreturn")));
    }
    for between in [Between::Code, Between::Jump, Between::Data] {
        let program = program(with_frame, between, DEFERRETURN);
        assert!(!is_exit(&program), "{between:?}");
    }
}

/// The entry of a function that only panics is too short to end before the call.
#[test]
fn no_window_has_the_call_in_its_middle() {
    let panics: fn(&mut CodeAssembler) -> Assembled = |code| {
        code.push(rbx)?;
        code.ud2()
    };
    let returns: fn(&mut CodeAssembler) -> Assembled = |code| {
        code.pop(rcx)?;
        code.ret()
    };
    for between in [Between::Nothing, Between::Padding] {
        for begins in [panics, returns] {
            let program = program(begins, between, DEFERRETURN);
            let plan = plan_of(&program);
            assert!(is_exit(&program));
            let call = program.tail.0;
            let mut windows = plan.sites.iter().map(|site| &site.window);
            assert!(
                windows.all(|w| w.start.0 >= call || w.end.0 <= call),
                "{:?}",
                plan.sites
            );
        }
    }
}
