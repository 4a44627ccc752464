//! Classic BPF programs (Documentation/networking/filter.rst), assembled from instructions. The
//! kernel verifies a program when it is attached, so a wrong one is rejected and never unsound.

/// Base offset of packet metadata (`SKF_AD_OFF` in linux/filter.h).
const KERNEL_DATA: u32 = 0xffff_f000;
/// Base offset of the network header (`SKF_NET_OFF`).
const NETWORK_HEADER: u32 = 0xfff0_0000;
/// Offsets of packet type and CPU number (`SKF_AD_PKTTYPE`, `SKF_AD_CPU`).
const KERNEL_DATA_PACKET_TYPE: u32 = 4;
const KERNEL_DATA_CPU: u32 = 36;
/// VLAN tag that the kernel stripped, 0 if there was none (`SKF_AD_VLAN_TAG`).
const KERNEL_DATA_VLAN_TAG: u32 = 44;
/// A random number (`SKF_AD_RANDOM`).
const KERNEL_DATA_RANDOM: u32 = 56;

/// Type of packets sent by this host (`PACKET_OUTGOING` in `linux/if_packet.h`).
pub const PACKET_OUTGOING: u32 = 4;
/// Type of packets whose destination MAC address is this host's (`PACKET_HOST`).
const PACKET_HOST: u32 = 0;

/// Length of a UDP header, which precedes the payload in the data that a socket filter sees.
const UDP_HEADER_LEN: u32 = 8;

/// One instruction of a classic BPF program (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpfInstruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// Constant or offset of the operation.
    pub operand: u32,
}

impl BpfInstruction {
    const fn new(code: u32, operand: u32) -> Self {
        Self { code: code as u16, jump_true: 0, jump_false: 0, operand }
    }

    /// Loads the 32-bit big-endian word at `offset`.
    #[must_use]
    pub const fn load_word(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
    }

    /// Loads the 16-bit big-endian word at `offset`.
    #[must_use]
    pub const fn load_half(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, offset)
    }

    /// Loads the byte at `offset`.
    #[must_use]
    pub const fn load_byte(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset)
    }

    /// Loads the 16-bit big-endian word at `offset` plus the index register.
    #[must_use]
    pub const fn load_half_indexed(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, offset)
    }

    /// Loads the byte at `offset` plus the index register.
    #[must_use]
    pub const fn load_byte_indexed(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, offset)
    }

    /// Loads the packet's length.
    #[must_use]
    pub const fn load_length() -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0)
    }

    /// Loads the packet type, such as [`PACKET_OUTGOING`].
    #[must_use]
    pub const fn load_packet_type() -> Self {
        Self::load_word(KERNEL_DATA + KERNEL_DATA_PACKET_TYPE)
    }

    /// Loads the VLAN tag that the kernel stripped from the packet, 0 if there was none.
    #[must_use]
    pub const fn load_vlan_tag() -> Self {
        Self::load_word(KERNEL_DATA + KERNEL_DATA_VLAN_TAG)
    }

    /// Combines the loaded value with `mask` by bitwise AND.
    #[must_use]
    pub const fn and(mask: u32) -> Self {
        Self::new(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask)
    }

    /// Loads the 32-bit big-endian word at `offset` plus the index register.
    #[must_use]
    pub const fn load_word_indexed(offset: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, offset)
    }

    /// Sets the index register to 4 times the low four bits of the byte at `offset`: the length of
    /// an IPv4 header.
    #[must_use]
    pub const fn load_index_ipv4_length(offset: u32) -> Self {
        Self::new(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, offset)
    }

    /// Compares the loaded value with `value`; skips `equal` instructions if equal, otherwise
    /// `different`.
    #[must_use]
    pub const fn jump_if_equal(value: u32, equal: u8, different: u8) -> Self {
        let mut instruction = Self::new(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value);
        instruction.jump_true = equal;
        instruction.jump_false = different;
        instruction
    }

    /// Tests the bits of `mask` in the loaded value; skips `any` instructions if any is set,
    /// otherwise `none`.
    #[must_use]
    pub const fn jump_if_any_set(mask: u32, any: u8, none: u8) -> Self {
        let mut instruction = Self::new(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, mask);
        instruction.jump_true = any;
        instruction.jump_false = none;
        instruction
    }

    /// Compares the loaded value with `value`; skips `greater` instructions if greater, otherwise
    /// `other`.
    #[must_use]
    pub const fn jump_if_greater(value: u32, greater: u8, other: u8) -> Self {
        let mut instruction = Self::new(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, value);
        instruction.jump_true = greater;
        instruction.jump_false = other;
        instruction
    }

    /// Ends the program with a constant: for a filter, the number of bytes to keep.
    #[must_use]
    pub const fn finish(value: u32) -> Self {
        Self::new(libc::BPF_RET | libc::BPF_K, value)
    }
}

/// Returns a program that returns the number of the present CPU modulo `count`.
pub(crate) fn cpu_modulo(count: u32) -> [BpfInstruction; 3] {
    [
        BpfInstruction::load_word(KERNEL_DATA + KERNEL_DATA_CPU),
        BpfInstruction::new(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count),
        BpfInstruction::new(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

/// Returns a program that returns the number of the present CPU, or a random number, modulo `half`;
/// `half` is added for packets longer than `len_max` bytes.
pub(crate) fn longer_in_second_half(half: u32, len_max: u32, by_cpu: bool) -> [BpfInstruction; 9] {
    let chooser = if by_cpu { KERNEL_DATA_CPU } else { KERNEL_DATA_RANDOM };
    [
        BpfInstruction::load_length(),
        BpfInstruction::jump_if_greater(len_max, 0, 4),
        BpfInstruction::load_word(KERNEL_DATA + chooser),
        BpfInstruction::new(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, half),
        BpfInstruction::new(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, half),
        BpfInstruction::new(libc::BPF_RET | libc::BPF_A, 0),
        BpfInstruction::load_word(KERNEL_DATA + chooser),
        BpfInstruction::new(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, half),
        BpfInstruction::new(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

/// Returns a filter for a UDP socket that marks unicast datagrams sent to a link-layer multicast or
/// broadcast address, by truncating the payload to `marked_len` bytes. Other datagrams of that
/// length lose their last byte, so the length is unambiguous. Without `marked_len`, datagrams to be
/// marked are dropped. Those with the byte `exempt_byte` (offset in the payload, and value) are not
/// marked.
pub(crate) fn link_group_filter(
    marked_len: Option<u32>,
    exempt_byte: Option<(u32, u8)>,
) -> Vec<BpfInstruction> {
    let retained = marked_len.map_or(0, |marked| UDP_HEADER_LEN + marked);
    let exception = exempt_byte.map(|(offset, value)| {
        [
            BpfInstruction::load_byte(UDP_HEADER_LEN + offset),
            BpfInstruction::jump_if_equal(u32::from(value), 0, 1),
            BpfInstruction::finish(u32::MAX),
        ]
    });
    let exception = exception.iter().flatten().copied();
    let ipv4_destination = NETWORK_HEADER + 16;
    let ipv6_destination = NETWORK_HEADER + 24;
    let mut program = vec![
        BpfInstruction::load_packet_type(),
        BpfInstruction::jump_if_equal(PACKET_HOST, 6, 0),
        BpfInstruction::load_byte(NETWORK_HEADER),
        BpfInstruction::jump_if_any_set(0x20, 2, 0),
        BpfInstruction::load_byte(ipv4_destination),
        BpfInstruction::jump_if_greater(0xdf, 2, 6),
        BpfInstruction::load_byte(ipv6_destination),
        BpfInstruction::jump_if_equal(0xff, 0, 4),
        BpfInstruction::load_length(),
        BpfInstruction::jump_if_equal(retained, 1, 0),
        BpfInstruction::finish(u32::MAX),
        BpfInstruction::finish(retained.saturating_sub(1)),
    ];
    program.extend(exception);
    program.push(BpfInstruction::finish(retained));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_has_the_kernels_layout() {
        assert_eq!(size_of::<BpfInstruction>(), size_of::<libc::sock_filter>());
        assert_eq!(std::mem::offset_of!(BpfInstruction, operand), 4);
    }
}
