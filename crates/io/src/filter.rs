//! Filters of packet sockets, so that the kernel delivers only the packets needed: the replies to a
//! generator of UDP datagrams, or one conversation to a capture socket.

mod conversation;

use std::net::IpAddr;

use horolog_sys::filter::BpfInstruction;

pub(crate) use conversation::KEEP_NOTHING;
pub use conversation::{Conversation, ExtraSample, PacketSample, RemoteEnd};

const ETHERTYPE_OFFSET: u32 = 12;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// Offset of the IP header. The kernel strips a VLAN tag before packet sockets receive the frame.
const IP_OFFSET: u32 = 14;
const IPV4_HEADER_BYTES: u32 = 20;
const IPV6_HEADER_BYTES: u32 = 40;
/// Offsets of the source and the destination address.
const IPV4_ADDRESS_AT: [u32; 2] = [IP_OFFSET + 12, IP_OFFSET + 16];
const IPV6_ADDRESS_AT: [u32; 2] = [IP_OFFSET + 8, IP_OFFSET + 24];
/// Offsets of the ports in the UDP header, and its length.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
const UDP_HEADER_BYTES: u32 = 8;
const PROTOCOL_UDP: u32 = 17;
/// Fragment offset and "more fragments" flag of IPv4 (RFC 791 section 3.1).
const FRAGMENT_BITS: u32 = 0x3fff;
/// Return value of a filter that keeps all of a packet.
const KEEP: u32 = u32::MAX;
const DROP: u32 = 0;

/// UDP datagrams that pass. Fragments are dropped, and so is IPv6 with extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFilter {
    /// Source address; only its family passes.
    pub source: IpAddr,
    /// Source port; any if `None`.
    pub source_port: Option<u16>,
    /// Destination port; any if `None`.
    pub destination_port: Option<u16>,
    /// Destination network, of the same family, with its prefix length; any if `None`.
    pub destination_network: Option<(IpAddr, u8)>,
}

/// Mark of the datagrams of another lane, among several that share addresses and ports: those whose
/// payload begins with certain bits and has the number of another lane at a certain offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMark {
    /// Low four bits of the first byte.
    pub kind: u8,
    /// Offset of the number in the payload, in bytes; shorter datagrams name no lane.
    pub offset: u32,
    /// Number of this lane.
    pub number: u16,
    /// Highest lane number; lanes have the numbers from 1, and other numbers name no lane.
    pub last: u16,
}

impl LaneMark {
    /// Returns tests that run after all others have passed: each ends at the instruction that keeps
    /// the packet (`Some` gives the condition for that) or goes on; after the last one it is
    /// dropped.
    fn tests(&self, payload: FieldBase) -> [LaneMarkStep; 9] {
        let number = LaneMarkStep::Just(payload.half(self.offset));
        // The length first: reading past the end of a packet drops it.
        [
            LaneMarkStep::Just(BpfInstruction::load_length()),
            LaneMarkStep::KeepUnlessGreater(payload.shortest() + self.offset + 1),
            LaneMarkStep::Just(payload.byte(0)),
            LaneMarkStep::Just(BpfInstruction::and(0xf)),
            LaneMarkStep::KeepUnlessEqual(self.kind.into()),
            number,
            LaneMarkStep::KeepIfEqual(self.number.into()),
            LaneMarkStep::KeepIfEqual(0),
            LaneMarkStep::KeepIfGreater(self.last.into()),
        ]
    }
}

/// Base of a field in a packet.
#[derive(Clone, Copy)]
enum FieldBase {
    /// Offset past the index register, which holds the length of the IPv4 header.
    Indexed(u32),
    /// Absolute offset.
    At(u32),
}

impl FieldBase {
    const fn byte(self, at: u32) -> BpfInstruction {
        match self {
            Self::Indexed(offset) => BpfInstruction::load_byte_indexed(offset + at),
            Self::At(offset) => BpfInstruction::load_byte(offset + at),
        }
    }

    const fn half(self, at: u32) -> BpfInstruction {
        match self {
            Self::Indexed(offset) => BpfInstruction::load_half_indexed(offset + at),
            Self::At(offset) => BpfInstruction::load_half(offset + at),
        }
    }

    const fn word(self, at: u32) -> BpfInstruction {
        match self {
            Self::Indexed(offset) => BpfInstruction::load_word_indexed(offset + at),
            Self::At(offset) => BpfInstruction::load_word(offset + at),
        }
    }

    /// Returns the base moved by `bytes`.
    const fn behind(self, bytes: u32) -> Self {
        match self {
            Self::Indexed(offset) => Self::Indexed(offset + bytes),
            Self::At(offset) => Self::At(offset + bytes),
        }
    }

    /// Returns the bytes before it in the shortest frame.
    const fn shortest(self) -> u32 {
        match self {
            Self::Indexed(offset) => offset + IPV4_HEADER_BYTES,
            Self::At(offset) => offset,
        }
    }
}

enum LaneMarkStep {
    Just(BpfInstruction),
    KeepIfEqual(u32),
    KeepUnlessEqual(u32),
    KeepIfGreater(u32),
    KeepUnlessGreater(u32),
}

impl UdpFilter {
    /// Returns the filter as a classic BPF program over Ethernet frames.
    #[must_use]
    pub fn program(&self) -> Vec<BpfInstruction> {
        self.tests().0.finish()
    }

    /// Returns the filter without the datagrams of another lane, as a classic BPF program.
    #[must_use]
    pub fn program_of_lane(&self, mark: &LaneMark) -> Vec<BpfInstruction> {
        let (tests, payload) = self.tests();
        let marks = mark.tests(payload);
        let mut program = tests.finish();
        // The program ends with "keep" and "drop"; the marks replace "keep", so that a
        // jump to "drop" must go on to the new one, past the marks and their own two instructions.
        let keep_at = program.len() - 2;
        let more = marks.len() as u8 + 1;
        for (at, instruction) in program[..keep_at].iter_mut().enumerate() {
            let to_drop = (keep_at - at) as u8;
            for jump in [&mut instruction.jump_true, &mut instruction.jump_false] {
                *jump += if *jump == to_drop { more } else { 0 };
            }
        }
        let last = program.split_off(keep_at);
        let count = marks.len();
        program.extend(marks.into_iter().enumerate().map(|(at, mark)| {
            // "drop" comes right after the marks, "keep" after it.
            let keep = (count - at) as u8;
            match mark {
                LaneMarkStep::Just(instruction) => instruction,
                LaneMarkStep::KeepIfEqual(value) => BpfInstruction::jump_if_equal(value, keep, 0),
                LaneMarkStep::KeepUnlessEqual(value) => {
                    BpfInstruction::jump_if_equal(value, 0, keep)
                }
                LaneMarkStep::KeepIfGreater(value) => {
                    BpfInstruction::jump_if_greater(value, keep, 0)
                }
                LaneMarkStep::KeepUnlessGreater(value) => {
                    BpfInstruction::jump_if_greater(value, 0, keep)
                }
            }
        }));
        program.push(BpfInstruction::finish(DROP));
        program.extend(last);
        program
    }

    fn tests(&self) -> (Tests, FieldBase) {
        let ports = [(SOURCE_PORT, self.source_port), (DESTINATION_PORT, self.destination_port)];
        let mut tests = Tests(Vec::new());
        let payload = tests.require_datagram((PacketDirection::From, self.source), &ports);
        if let Some((network, prefix_len)) = self.destination_network {
            tests.require_network((PacketDirection::To, network), prefix_len);
        }
        (tests, payload)
    }
}

/// Direction of the packets of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PacketDirection {
    /// From the remote end.
    From,
    /// To the remote end.
    To,
}

/// Program of tests that must all pass. A failed test skips one instruction less than it takes to
/// get past the end; [`Tests::finish`] sets that distance once it is known.
struct Tests(Vec<FilterStep>);

enum FilterStep {
    Just(BpfInstruction),
    Require(u32),
    Refuse(u32),
    RefuseAny(u32),
}

impl Tests {
    fn just(&mut self, instruction: BpfInstruction) {
        self.0.push(FilterStep::Just(instruction));
    }

    fn require(&mut self, load: BpfInstruction, value: u32) {
        self.0.extend([FilterStep::Just(load), FilterStep::Require(value)]);
    }

    fn refuse_any(&mut self, load: BpfInstruction, mask: u32) {
        self.0.extend([FilterStep::Just(load), FilterStep::RefuseAny(mask)]);
    }

    /// Requires UDP datagrams from or to an address, with these ports; returns the base of their
    /// payload.
    fn require_datagram(
        &mut self,
        (way, address): (PacketDirection, IpAddr),
        ports: &[(u32, Option<u16>)],
    ) -> FieldBase {
        // The end of an IPv4 header is found by its length; IPv6 headers have a fixed one.
        let udp = match address {
            IpAddr::V4(address) => {
                let address_at = IPV4_ADDRESS_AT[way as usize];
                self.require(BpfInstruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV4);
                self.require(BpfInstruction::load_byte(IP_OFFSET + 9), PROTOCOL_UDP);
                self.refuse_any(BpfInstruction::load_half(IP_OFFSET + 6), FRAGMENT_BITS);
                self.require(BpfInstruction::load_word(address_at), address.to_bits());
                self.just(BpfInstruction::load_index_ipv4_length(IP_OFFSET));
                FieldBase::Indexed(IP_OFFSET)
            }
            IpAddr::V6(address) => {
                let address_at = IPV6_ADDRESS_AT[way as usize];
                self.require(BpfInstruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV6);
                self.require(BpfInstruction::load_byte(IP_OFFSET + 6), PROTOCOL_UDP);
                for (offset, word) in (address_at..).step_by(4).zip(words(address.octets())) {
                    self.require(BpfInstruction::load_word(offset), word);
                }
                FieldBase::At(IP_OFFSET + IPV6_HEADER_BYTES)
            }
        };
        for &(offset, port) in ports {
            if let Some(port) = port {
                self.require(udp.half(offset), port.into());
            }
        }
        udp.behind(UDP_HEADER_BYTES)
    }

    /// Requires packets from or to a network of the family that was required before.
    fn require_network(&mut self, (way, network): (PacketDirection, IpAddr), prefix_len: u8) {
        let (address_at, words) = match network {
            IpAddr::V4(address) => (IPV4_ADDRESS_AT[way as usize], vec![address.to_bits()]),
            IpAddr::V6(address) => (IPV6_ADDRESS_AT[way as usize], words(address.octets()).into()),
        };
        let first_bits = (0..).step_by(32);
        for ((offset, word), first_bit) in (address_at..).step_by(4).zip(words).zip(first_bits) {
            let bits = u32::from(prefix_len).saturating_sub(first_bit).min(32);
            if bits > 0 {
                let mask = u32::MAX << (32 - bits);
                self.just(BpfInstruction::load_word(offset));
                self.require(BpfInstruction::and(mask), word & mask);
            }
        }
    }

    /// Ends the program: keeps the packet if every test passed, drops it otherwise.
    fn finish(self) -> Vec<BpfInstruction> {
        let keep_at = self.0.len();
        let assemble = |(at, step)| {
            // From after this instruction to the one after `keep_at`. The longest program has some
            // 40 instructions, so a jump always fits its byte.
            let to_drop = (keep_at - at) as u8;
            match step {
                FilterStep::Just(instruction) => instruction,
                FilterStep::Require(value) => BpfInstruction::jump_if_equal(value, 0, to_drop),
                FilterStep::Refuse(value) => BpfInstruction::jump_if_equal(value, to_drop, 0),
                FilterStep::RefuseAny(mask) => BpfInstruction::jump_if_any_set(mask, to_drop, 0),
            }
        };
        let mut program: Vec<_> = self.0.into_iter().enumerate().map(assemble).collect();
        program.extend([BpfInstruction::finish(KEEP), BpfInstruction::finish(DROP)]);
        program
    }
}

fn words(octets: [u8; 16]) -> [u32; 4] {
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
