//! Classic BPF filters of packet sockets, so that the kernel delivers only the packets needed: the
//! replies to a generator of UDP datagrams, or one conversation to a capture socket.

mod conversation;

use std::net::IpAddr;

use horolog_sys::filter::BpfInstruction;

pub(crate) use conversation::KEEP_NOTHING;
pub use conversation::{NonReplySamplingRule, PacketSamplingRule, RemoteEnd, RemoteEndSelection};

const ETHERTYPE_OFFSET: u32 = 12;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// Offset of the IP header. The kernel strips a VLAN tag before packet sockets receive the frame.
const IP_OFFSET: u32 = 14;
const IPV4_HEADER_BYTES: u32 = 20;
const IPV6_HEADER_BYTES: u32 = 40;
/// Offsets of the source and the destination address.
const IPV4_ADDRESS_OFFSETS: [u32; 2] = [IP_OFFSET + 12, IP_OFFSET + 16];
const IPV6_ADDRESS_OFFSETS: [u32; 2] = [IP_OFFSET + 8, IP_OFFSET + 24];
/// Offsets of the ports in the UDP header, and its length.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
const UDP_HEADER_BYTES: u32 = 8;
const PROTOCOL_UDP: u32 = 17;
/// Fragment offset and "more fragments" flag of IPv4 (RFC 791 section 3.1).
const FRAGMENT_BITS: u32 = 0x3fff;
/// Return value of a filter that keeps the whole packet.
const KEEP: u32 = u32::MAX;
const DROP: u32 = 0;

/// UDP datagrams that pass the filter. Fragments, and IPv6 packets with extension headers, are
/// dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFilter {
    /// Source address; datagrams of the other IP version are dropped.
    pub source: IpAddr,
    /// Source port; any if `None`.
    pub source_port: Option<u16>,
    /// Destination port; any if `None`.
    pub destination_port: Option<u16>,
    /// Destination network, of the same family, with its prefix length; any if `None`.
    pub destination_network: Option<(IpAddr, u8)>,
}

/// Filter by lane number, for lanes that share addresses and ports. Drops datagrams of `kind` that
/// carry the number of another lane, and keeps all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneNumberFilter {
    /// Kind of the datagrams with a lane number: the low four bits of the first payload byte.
    pub kind: u8,
    /// Offset of the 16-bit lane number in the payload, in bytes; shorter datagrams are kept.
    pub offset: u32,
    /// Number of this lane.
    pub number: u16,
    /// Highest lane number. Lanes are numbered from 1; datagrams with 0 or a higher number are
    /// kept.
    pub last: u16,
}

impl LaneNumberFilter {
    /// Returns the steps to run after all other tests have passed. Each step keeps the packet, or
    /// continues with the next step; after the last one the packet is dropped.
    fn steps(&self, payload: FieldOffsetBase) -> [LaneNumberFilterStep; 9] {
        let number = LaneNumberFilterStep::Instruction(payload.load_half(self.offset));
        // The length first: reading past the end of a packet drops it.
        [
            LaneNumberFilterStep::Instruction(BpfInstruction::load_length()),
            LaneNumberFilterStep::KeepUnlessGreater(payload.offset_min() + self.offset + 1),
            LaneNumberFilterStep::Instruction(payload.load_byte(0)),
            LaneNumberFilterStep::Instruction(BpfInstruction::and(0xf)),
            LaneNumberFilterStep::KeepUnlessEqual(self.kind.into()),
            number,
            LaneNumberFilterStep::KeepIfEqual(self.number.into()),
            LaneNumberFilterStep::KeepIfEqual(0),
            LaneNumberFilterStep::KeepIfGreater(self.last.into()),
        ]
    }
}

/// Base from which the offsets of fields in a frame are counted, as a BPF program addresses it.
#[derive(Clone, Copy)]
enum FieldOffsetBase {
    /// Offset plus the index register, which holds the length of the IPv4 header.
    Indexed(u32),
    /// Offset from the start of the frame.
    Absolute(u32),
}

impl FieldOffsetBase {
    const fn load_byte(self, at: u32) -> BpfInstruction {
        match self {
            Self::Indexed(offset) => BpfInstruction::load_byte_indexed(offset + at),
            Self::Absolute(offset) => BpfInstruction::load_byte(offset + at),
        }
    }

    const fn load_half(self, at: u32) -> BpfInstruction {
        match self {
            Self::Indexed(offset) => BpfInstruction::load_half_indexed(offset + at),
            Self::Absolute(offset) => BpfInstruction::load_half(offset + at),
        }
    }

    const fn load_word(self, at: u32) -> BpfInstruction {
        match self {
            Self::Indexed(offset) => BpfInstruction::load_word_indexed(offset + at),
            Self::Absolute(offset) => BpfInstruction::load_word(offset + at),
        }
    }

    /// Returns the base `bytes` further on.
    const fn advanced_by(self, bytes: u32) -> Self {
        match self {
            Self::Indexed(offset) => Self::Indexed(offset + bytes),
            Self::Absolute(offset) => Self::Absolute(offset + bytes),
        }
    }

    /// Returns the smallest offset of the base in a frame: with an IPv4 header without options.
    const fn offset_min(self) -> u32 {
        match self {
            Self::Indexed(offset) => offset + IPV4_HEADER_BYTES,
            Self::Absolute(offset) => offset,
        }
    }
}

enum LaneNumberFilterStep {
    Instruction(BpfInstruction),
    KeepIfEqual(u32),
    KeepUnlessEqual(u32),
    KeepIfGreater(u32),
    KeepUnlessGreater(u32),
}

impl UdpFilter {
    /// Returns the filter as a classic BPF program over Ethernet frames.
    #[must_use]
    pub fn program(&self) -> Vec<BpfInstruction> {
        self.packet_tests().0.finish()
    }

    /// Returns the filter combined with a lane filter, as a classic BPF program.
    #[must_use]
    pub fn program_of_lane(&self, lane_filter: &LaneNumberFilter) -> Vec<BpfInstruction> {
        let (tests, payload) = self.packet_tests();
        let lane_steps = lane_filter.steps(payload);
        let mut program = tests.finish();
        // The program ends with "keep" and "drop". The lane steps and a "drop" of their own are
        // inserted before these two, so every jump to the last "drop" becomes longer by their
        // number.
        let keep_at = program.len() - 2;
        let more = lane_steps.len() as u8 + 1;
        for (at, instruction) in program[..keep_at].iter_mut().enumerate() {
            let to_drop = (keep_at - at) as u8;
            for jump in [&mut instruction.jump_true, &mut instruction.jump_false] {
                *jump += if *jump == to_drop { more } else { 0 };
            }
        }
        let last = program.split_off(keep_at);
        let count = lane_steps.len();
        program.extend(lane_steps.into_iter().enumerate().map(|(at, step)| {
            // After the lane steps come "drop" and then "keep".
            let keep = (count - at) as u8;
            match step {
                LaneNumberFilterStep::Instruction(instruction) => instruction,
                LaneNumberFilterStep::KeepIfEqual(value) => {
                    BpfInstruction::jump_if_equal(value, keep, 0)
                }
                LaneNumberFilterStep::KeepUnlessEqual(value) => {
                    BpfInstruction::jump_if_equal(value, 0, keep)
                }
                LaneNumberFilterStep::KeepIfGreater(value) => {
                    BpfInstruction::jump_if_greater(value, keep, 0)
                }
                LaneNumberFilterStep::KeepUnlessGreater(value) => {
                    BpfInstruction::jump_if_greater(value, 0, keep)
                }
            }
        }));
        program.push(BpfInstruction::finish(DROP));
        program.extend(last);
        program
    }

    fn packet_tests(&self) -> (PacketPredicates, FieldOffsetBase) {
        let ports = [(SOURCE_PORT, self.source_port), (DESTINATION_PORT, self.destination_port)];
        let mut tests = PacketPredicates(Vec::new());
        let payload = tests.require_datagram((PacketDirection::FromRemote, self.source), &ports);
        if let Some((network, prefix_len)) = self.destination_network {
            tests.require_network((PacketDirection::ToRemote, network), prefix_len);
        }
        (tests, payload)
    }
}

/// Direction of a packet, relative to the remote end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PacketDirection {
    /// From the remote end.
    FromRemote,
    /// To the remote end.
    ToRemote,
}

/// Tests of a packet, all of which must pass. The jump of a failed test to the final "drop" is
/// resolved by [`PacketPredicates::finish`], when the length of the program is known.
struct PacketPredicates(Vec<FilterStep>);

enum FilterStep {
    Instruction(BpfInstruction),
    RequireEqual(u32),
    RefuseEqual(u32),
    RefuseAnyBit(u32),
}

impl PacketPredicates {
    fn push_instruction(&mut self, instruction: BpfInstruction) {
        self.0.push(FilterStep::Instruction(instruction));
    }

    fn require_equal(&mut self, load: BpfInstruction, value: u32) {
        self.0.extend([FilterStep::Instruction(load), FilterStep::RequireEqual(value)]);
    }

    fn refuse_any_bit(&mut self, load: BpfInstruction, mask: u32) {
        self.0.extend([FilterStep::Instruction(load), FilterStep::RefuseAnyBit(mask)]);
    }

    /// Requires a UDP datagram from or to an address. `ports` are pairs of the offset of a port in
    /// the UDP header and its required value (`None`: any). Returns the base of the payload.
    fn require_datagram(
        &mut self,
        (direction, address): (PacketDirection, IpAddr),
        ports: &[(u32, Option<u16>)],
    ) -> FieldOffsetBase {
        // An IPv4 header has a variable length; IPv6 packets with extension headers do not pass.
        let udp = match address {
            IpAddr::V4(address) => {
                let address_at = IPV4_ADDRESS_OFFSETS[direction as usize];
                self.require_equal(BpfInstruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV4);
                self.require_equal(BpfInstruction::load_byte(IP_OFFSET + 9), PROTOCOL_UDP);
                self.refuse_any_bit(BpfInstruction::load_half(IP_OFFSET + 6), FRAGMENT_BITS);
                self.require_equal(BpfInstruction::load_word(address_at), address.to_bits());
                self.push_instruction(BpfInstruction::load_index_ipv4_length(IP_OFFSET));
                FieldOffsetBase::Indexed(IP_OFFSET)
            }
            IpAddr::V6(address) => {
                let address_at = IPV6_ADDRESS_OFFSETS[direction as usize];
                self.require_equal(BpfInstruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV6);
                self.require_equal(BpfInstruction::load_byte(IP_OFFSET + 6), PROTOCOL_UDP);
                for (offset, word) in (address_at..).step_by(4).zip(address_words(address.octets()))
                {
                    self.require_equal(BpfInstruction::load_word(offset), word);
                }
                FieldOffsetBase::Absolute(IP_OFFSET + IPV6_HEADER_BYTES)
            }
        };
        for &(offset, port) in ports {
            if let Some(port) = port {
                self.require_equal(udp.load_half(offset), port.into());
            }
        }
        udp.advanced_by(UDP_HEADER_BYTES)
    }

    /// Requires a source or destination network of the IP version already required.
    fn require_network(&mut self, (direction, network): (PacketDirection, IpAddr), prefix_len: u8) {
        let (address_at, words) = match network {
            IpAddr::V4(address) => {
                (IPV4_ADDRESS_OFFSETS[direction as usize], vec![address.to_bits()])
            }
            IpAddr::V6(address) => {
                (IPV6_ADDRESS_OFFSETS[direction as usize], address_words(address.octets()).into())
            }
        };
        let first_bits = (0..).step_by(32);
        for ((offset, word), first_bit) in (address_at..).step_by(4).zip(words).zip(first_bits) {
            let bits = u32::from(prefix_len).saturating_sub(first_bit).min(32);
            if bits > 0 {
                let mask = u32::MAX << (32 - bits);
                self.push_instruction(BpfInstruction::load_word(offset));
                self.require_equal(BpfInstruction::and(mask), word & mask);
            }
        }
    }

    /// Returns the program: it keeps a packet that passes all tests, and drops any other.
    fn finish(self) -> Vec<BpfInstruction> {
        let keep_at = self.0.len();
        let assemble = |(at, step)| {
            // Distance from the next instruction to the one after `keep_at`. The longest program
            // has some 40 instructions, so the distance fits 8 bits.
            let to_drop = (keep_at - at) as u8;
            match step {
                FilterStep::Instruction(instruction) => instruction,
                FilterStep::RequireEqual(value) => BpfInstruction::jump_if_equal(value, 0, to_drop),
                FilterStep::RefuseEqual(value) => BpfInstruction::jump_if_equal(value, to_drop, 0),
                FilterStep::RefuseAnyBit(mask) => BpfInstruction::jump_if_any_set(mask, to_drop, 0),
            }
        };
        let mut program: Vec<_> = self.0.into_iter().enumerate().map(assemble).collect();
        program.extend([BpfInstruction::finish(KEEP), BpfInstruction::finish(DROP)]);
        program
    }
}

fn address_words(octets: [u8; 16]) -> [u32; 4] {
    std::array::from_fn(|index| {
        u32::from_be_bytes(std::array::from_fn(|byte| octets[index * 4 + byte]))
    })
}

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod lanes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failing_test_ends_at_the_instruction_that_drops() {
        for source in ["192.0.2.1", "2001:db8::1"] {
            let filter = UdpFilter {
                source: source.parse().unwrap(),
                source_port: Some(123),
                destination_port: Some(32_768),
                destination_network: None,
            };
            let program = filter.program();
            let drop_at = program.len() - 1;
            assert_eq!(program[drop_at], BpfInstruction::finish(DROP));
            assert_eq!(program[drop_at - 1], BpfInstruction::finish(KEEP));
            for (at, step) in program.iter().enumerate() {
                let jump = usize::from(step.jump_true.max(step.jump_false));
                assert!(jump == 0 || at + 1 + jump == drop_at, "{at}: {step:?}");
            }
            assert!(program.iter().filter(|step| step.jump_false > 0).count() >= 5, "{program:?}");
        }
    }
}
