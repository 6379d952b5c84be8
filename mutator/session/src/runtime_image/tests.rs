//! Properties of the image, read from its instructions.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpKind, Register,
};

use std::collections::HashMap;

use super::*;

#[test]
fn the_image_is_whole() {
    let image = RuntimeImage::load().expect("built in");
    for symbol in [
        abi::image::SYMBOL_ENTRY_STUB,
        abi::image::SYMBOL_CALLED_STUB,
        abi::image::SYMBOL_EXIT_STUB,
        abi::image::SYMBOL_TAIL_STUB,
        abi::image::SYMBOL_LEND_STUB,
        abi::image::SYMBOL_ENDER_STUB,
        abi::image::SYMBOL_ENDER_TAIL_STUB,
        abi::image::SYMBOL_POINT_STUB,
        abi::image::SYMBOL_SPAN_STUB,
        abi::image::SYMBOL_SPAN_END_STUB,
        abi::image::SYMBOL_TIMED_PATH_STUB,
        abi::image::SYMBOL_TIMED_PATH_END_STUB,
        abi::image::SYMBOL_COUNT_STUB,
        abi::image::SYMBOL_PATH_STUB,
        abi::image::SYMBOL_PATHS,
        abi::image::SYMBOL_IDLE_STUB,
        abi::image::SYMBOL_PARAMETERS,
        abi::image::SYMBOL_DETAILS,
        abi::image::SYMBOL_ALIVE,
        abi::image::SYMBOL_PROBES,
        abi::image::SYMBOL_MAPS,
        abi::image::SYMBOL_MAPS_USED,
        abi::image::SYMBOL_COROUTINES,
    ] {
        let at = image.address(Avma(0), symbol).expect("exported");
        assert!(at.0 < image.size, "{symbol}");
    }
    let alive = image
        .address(Avma(0), abi::image::SYMBOL_ALIVE)
        .expect("exported");
    assert_eq!(alive.0 % PAGE, 0);
    assert!(image.writable.contains(&alive.0));
    assert_eq!(image.writable.end, image.size);
}

/// With the loose clock, exits run no `lfence`, and nothing else differs.
#[test]
fn a_loose_clock_takes_the_fences_away() {
    let image = RuntimeImage::load().expect("built in");
    let laid = |clock| {
        let mut bytes = vec![0_u8; image.size as usize];
        for (at, part) in image.writes(Avma(0), clock) {
            bytes[at.0 as usize..][..part.len()].copy_from_slice(&part);
        }
        bytes
    };
    let (ordered, loose) = (laid(ExitClock::Ordered), laid(ExitClock::Loose));
    let stubs = [
        abi::image::SYMBOL_EXIT_STUB,
        abi::image::SYMBOL_TAIL_STUB,
        abi::image::SYMBOL_LEND_STUB,
        abi::image::SYMBOL_ENDER_STUB,
        abi::image::SYMBOL_ENDER_TAIL_STUB,
        abi::image::SYMBOL_SPAN_END_STUB,
        abi::image::SYMBOL_TIMED_PATH_END_STUB,
    ];
    for stub in stubs {
        let start = image.address(Avma(0), stub).expect("exported");
        let after = image.fences.iter().filter(|&&at| at >= start.0).min();
        let at = *after.expect("a fence") as usize;
        assert_eq!(
            ordered[at..at + 5],
            [0x0f, 0xae, 0xe8, 0x0f, 0x31],
            "{stub}"
        );
        assert_eq!(loose[at..at + 5], [0x0f, 0x1f, 0x00, 0x0f, 0x31], "{stub}");
    }
    let differing = ordered
        .iter()
        .zip(&loose)
        .filter(|(one, other)| one != other);
    assert_eq!(differing.count(), 2 * image.fences.len());
}

/// The limit for a probe's use of the application's stack, in bytes, including its trampoline's.
const MOST_STACK: u64 = 256;

/// The limit for a thread on its own stack, if more than the time is measured.
const MOST_AT_HOME: u64 = 640;

/// Bytes that trampolines push before a stub: rax and the return address.
const BY_TRAMPOLINE: u64 = 16;

/// The code that is reached from a stub on the application's stack.
struct Reach<'a> {
    image: &'a RuntimeImage,
    info: InstructionInfoFactory,
    /// Instructions seen, with the bytes on the stack there.
    seen: HashMap<u64, u64>,
    deepest: u64,
    /// The addresses at which probes continue on a thread's own stack, by calls through a table,
    /// and the greatest depth there.
    at_home: Vec<u64>,
    deepest_at_home: u64,
}

impl Reach<'_> {
    fn decode(&self, at: u64) -> Instruction {
        let part = self.image.parts.iter().rev().find(|p| p.0 <= at);
        let (start, bytes) = part.expect("in the image");
        let rest = &bytes[(at - start) as usize..];
        Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode()
    }

    /// A word of the image, relocated to address 0.
    fn word(&self, at: u64) -> u64 {
        let parts = self.image.writes(Avma(0), ExitClock::Ordered);
        let part = parts.iter().rev().find(|(start, _)| start.0 <= at);
        let (start, bytes) = part.expect("in the image");
        let word = &bytes[(at - start.0) as usize..][..8];
        u64::from_le_bytes(word.try_into().expect("eight"))
    }

    /// Follows the code from `at`, where `depth` bytes are on the stack, to its ends: a return, or
    /// the switch to another stack.
    fn follow(&mut self, mut at: u64, mut depth: u64) {
        loop {
            let instruction = self.decode(at);
            if let Some(&before) = self.seen.get(&at) {
                // Each function has one shape of frame at each of its instructions, but may be
                // called from several depths.
                if before >= depth {
                    return;
                }
            }
            self.seen.insert(at, depth);
            assert_ne!(instruction.code(), Code::INVALID, "at {at:#x}");
            self.check_registers(&instruction);
            if instruction.mnemonic() == Mnemonic::Mov
                && instruction.op0_kind() == OpKind::Register
                && instruction.op0_register() == Register::RSP
            {
                return;
            }
            // Accesses below the stack pointer: the red zone.
            let below = match instruction.memory_base() {
                Register::RSP => (instruction.memory_displacement64() as i64)
                    .min(0)
                    .unsigned_abs(),
                _ => 0,
            };
            self.deepest = self.deepest.max(depth + below);
            let moved = i64::from(instruction.stack_pointer_increment());
            let moved = match (instruction.mnemonic(), instruction.op0_kind()) {
                (Mnemonic::Sub, OpKind::Register)
                    if instruction.op0_register() == Register::RSP =>
                {
                    -(instruction.immediate(1) as i64)
                }
                (Mnemonic::Add, OpKind::Register)
                    if instruction.op0_register() == Register::RSP =>
                {
                    instruction.immediate(1) as i64
                }
                _ => moved,
            };
            let after = depth
                .checked_add_signed(-moved)
                .expect("no more than was pushed");
            self.deepest = self.deepest.max(after);
            let next = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Return | FlowControl::Exception => return,
                FlowControl::UnconditionalBranch => {
                    (at, depth) = (instruction.near_branch_target(), after)
                }
                FlowControl::ConditionalBranch => {
                    self.follow(instruction.near_branch_target(), after);
                    (at, depth) = (next, after);
                }
                // System calls use no stack.
                FlowControl::Call if instruction.code() == Code::Syscall => {
                    (at, depth) = (next, after)
                }
                FlowControl::IndirectCall => {
                    let target = self.word(instruction.ip_rel_memory_address());
                    let is_at_home = self.at_home.contains(&target);
                    assert!(is_at_home, "{instruction} at {at:#x}");
                    let deepest = std::mem::take(&mut self.deepest);
                    self.follow(target, after);
                    self.deepest_at_home = self.deepest_at_home.max(self.deepest);
                    self.deepest = deepest;
                    (at, depth) = (next, depth);
                }
                FlowControl::Call => {
                    self.follow(instruction.near_branch_target(), after);
                    (at, depth) = (next, depth);
                }
                FlowControl::Next => (at, depth) = (next, after),
                other => panic!("{instruction} at {at:#x}: {other:?}"),
            }
        }
    }

    fn check_registers(&mut self, instruction: &Instruction) {
        // Arguments and return values are read from vector registers, which stay as they are.
        if instruction.code() == Code::Movq_rm64_xmm && instruction.op0_kind() == OpKind::Register {
            return;
        }
        for used in self.info.info(instruction).used_registers() {
            let register = used.register();
            let full = register.full_register();
            assert!(
                full.is_gpr64() || register.is_segment_register() || register == Register::RIP,
                "{instruction} at {:#x} uses {register:?}",
                instruction.ip()
            );
        }
    }
}

/// Code that runs on the application's stack touches no vector, mask or x87 register. It uses less
/// of the stack than a goroutine or a coroutine has left.
#[test]
fn probes_touch_no_vector_register_and_little_stack() {
    let image = RuntimeImage::load().expect("built in");
    for stub in [
        abi::image::SYMBOL_ENTRY_STUB,
        abi::image::SYMBOL_CALLED_STUB,
        abi::image::SYMBOL_VERIFIED_ENTRY_STUB,
        abi::image::SYMBOL_EXIT_STUB,
        abi::image::SYMBOL_TAIL_STUB,
        abi::image::SYMBOL_LEND_STUB,
        abi::image::SYMBOL_ENDER_STUB,
        abi::image::SYMBOL_ENDER_TAIL_STUB,
        abi::image::SYMBOL_POINT_STUB,
        abi::image::SYMBOL_VERIFIED_POINT_STUB,
        abi::image::SYMBOL_SPAN_STUB,
        abi::image::SYMBOL_VERIFIED_SPAN_STUB,
        abi::image::SYMBOL_SPAN_END_STUB,
        abi::image::SYMBOL_TIMED_PATH_STUB,
        abi::image::SYMBOL_VERIFIED_TIMED_PATH_STUB,
        abi::image::SYMBOL_TIMED_PATH_END_STUB,
    ] {
        let address = |symbol| image.address(Avma(0), symbol).expect("exported").0;
        let start = address(stub);
        let mut reach = Reach {
            image: &image,
            info: InstructionInfoFactory::new(),
            seen: HashMap::new(),
            deepest: 0,
            at_home: abi::image::SYMBOLS_AT_HOME.map(address).to_vec(),
            deepest_at_home: 0,
        };
        reach.follow(start, BY_TRAMPOLINE);
        println!(
            "{stub}: {} instructions, at most {} bytes",
            reach.seen.len(),
            reach.deepest
        );
        assert!(reach.seen.len() > 100, "{stub} is more than this");
        // The verifying stubs are for tests, and walk the stack in any case.
        let verifying = [
            abi::image::SYMBOL_VERIFIED_ENTRY_STUB,
            abi::image::SYMBOL_VERIFIED_POINT_STUB,
            abi::image::SYMBOL_VERIFIED_SPAN_STUB,
            abi::image::SYMBOL_VERIFIED_TIMED_PATH_STUB,
        ];
        let is_limited = !verifying.contains(&stub);
        assert!(
            !is_limited || reach.deepest < MOST_STACK,
            "{stub}: {} bytes",
            reach.deepest
        );
        assert!(
            reach.deepest_at_home < MOST_AT_HOME,
            "{stub}: {} bytes",
            reach.deepest_at_home
        );
    }
}
