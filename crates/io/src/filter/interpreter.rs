//! Small interpreter of filter instructions.

use super::DROP;
use horolog_sys::filter::BpfInstruction;

/// Returns the result of a program for a received frame.
pub(super) fn run(program: &[BpfInstruction], frame: &[u8]) -> u32 {
    run_for(program, frame, 0)
}

/// Returns the result of a program for a frame with this packet type of the kernel; a load past its
/// end drops it, as in the kernel.
pub(super) fn run_for(program: &[BpfInstruction], frame: &[u8], packet_type: u32) -> u32 {
    let same = |code: u16, like: BpfInstruction| code == like.code;
    let load = |at: u32, count: usize| -> Option<u32> {
        let bytes = frame.get(at as usize..)?.get(..count)?;
        Some(bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    };
    let (mut value, mut index, mut at) = (0, 0, 0);
    loop {
        let BpfInstruction { code, operand, .. } = program[at];
        let mut holds = None;
        let loaded = if program[at] == BpfInstruction::load_packet_type() {
            Some(packet_type)
        } else if same(code, BpfInstruction::load_word(0)) {
            load(operand, 4)
        } else if same(code, BpfInstruction::load_half(0)) {
            load(operand, 2)
        } else if same(code, BpfInstruction::load_byte(0)) {
            load(operand, 1)
        } else if same(code, BpfInstruction::load_half_indexed(0)) {
            load(operand + index, 2)
        } else if same(code, BpfInstruction::load_word_indexed(0)) {
            load(operand + index, 4)
        } else if same(code, BpfInstruction::load_byte_indexed(0)) {
            load(operand + index, 1)
        } else if same(code, BpfInstruction::load_index_ipv4_length(0)) {
            index = load(operand, 1).unwrap_or(0) % 16 * 4;
            Some(value)
        } else if same(code, BpfInstruction::load_length()) {
            Some(frame.len() as u32)
        } else if same(code, BpfInstruction::and(0)) {
            Some(value & operand)
        } else if same(code, BpfInstruction::finish(0)) {
            return operand;
        } else {
            holds = Some(if same(code, BpfInstruction::jump_if_equal(0, 0, 0)) {
                value == operand
            } else if same(code, BpfInstruction::jump_if_greater(0, 0, 0)) {
                value > operand
            } else {
                assert!(same(code, BpfInstruction::jump_if_any_set(0, 0, 0)), "{code:x}");
                value & operand != 0
            });
            Some(value)
        };
        let Some(new) = loaded else { return DROP };
        value = new;
        let jump = match holds {
            None => 0,
            Some(true) => program[at].jump_true,
            Some(false) => program[at].jump_false,
        };
        at += 1 + usize::from(jump);
    }
}
