//! The filters that packet sockets have, so that the kernel hands up what is wanted and nothing
//! else: to a generator of UDP datagrams the replies, to a tap one conversation.

mod conversation;

use std::net::IpAddr;

use horolog_sys::filter::Instruction;

pub(crate) use conversation::KEEP_NOTHING;
pub use conversation::{Besides, Conversation, End, Sample};

const ETHERTYPE_OFFSET: u32 = 12;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// Where the IP header starts. The kernel takes a VLAN tag off before packet sockets see the frame.
const IP_OFFSET: u32 = 14;
const IPV4_HEADER_BYTES: u32 = 20;
const IPV6_HEADER_BYTES: u32 = 40;
/// Where the source and the destination address stand.
const IPV4_ADDRESS_AT: [u32; 2] = [IP_OFFSET + 12, IP_OFFSET + 16];
const IPV6_ADDRESS_AT: [u32; 2] = [IP_OFFSET + 8, IP_OFFSET + 24];
/// Where the ports stand in the UDP header, and its length.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
const UDP_HEADER_BYTES: u32 = 8;
const PROTOCOL_UDP: u32 = 17;
/// The fragment offset and the "more fragments" flag of IPv4 (RFC 791 section 3.1).
const FRAGMENT_BITS: u32 = 0x3fff;
/// What a filter returns to keep all of a packet.
const KEEP: u32 = u32::MAX;
const DROP: u32 = 0;

/// Which UDP datagrams to keep. Fragments are not kept, nor is IPv6 with extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpFilter {
    /// The address that they come from; its family is the family kept.
    pub source: IpAddr,
    /// The port that they come from; any if `None`.
    pub source_port: Option<u16>,
    /// The port that they go to; any if `None`.
    pub destination_port: Option<u16>,
    /// The network that they go to, of the same family, with the length of its prefix; any if
    /// `None`.
    pub destination_network: Option<(IpAddr, u8)>,
}

/// Which datagrams name another lane of several that share addresses and ports: those whose payload
/// begins with certain bits and has a number of another lane at a certain place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMark {
    /// The low four bits of the first byte.
    pub kind: u8,
    /// Where the number stands in the payload, in bytes; shorter datagrams name no lane.
    pub offset: u32,
    /// The number of this lane.
    pub number: u16,
    /// The lanes have the numbers from 1 to this one; others name no lane.
    pub last: u16,
}

impl LaneMark {
    /// Tests that come when all others held: each ends at the instruction that keeps the packet
    /// (`Some` of what holds for that) or goes on; behind the last one it is dropped.
    fn tests(&self, payload: Place) -> [Mark; 9] {
        let number = Mark::Just(payload.half(self.offset));
        // The length first: to read behind the end of a packet drops it.
        [
            Mark::Just(Instruction::load_length()),
            Mark::KeepUnlessGreater(payload.shortest() + self.offset + 1),
            Mark::Just(payload.byte(0)),
            Mark::Just(Instruction::and(0xf)),
            Mark::KeepUnlessEqual(self.kind.into()),
            number,
            Mark::KeepIfEqual(self.number.into()),
            Mark::KeepIfEqual(0),
            Mark::KeepIfGreater(self.last.into()),
        ]
    }
}

/// Where a part of a packet begins.
#[derive(Clone, Copy)]
enum Place {
    /// At an offset past the index register, which holds the length of the IPv4 header.
    Indexed(u32),
    /// At an offset.
    At(u32),
}

impl Place {
    const fn byte(self, at: u32) -> Instruction {
        match self {
            Self::Indexed(offset) => Instruction::load_byte_indexed(offset + at),
            Self::At(offset) => Instruction::load_byte(offset + at),
        }
    }

    const fn half(self, at: u32) -> Instruction {
        match self {
            Self::Indexed(offset) => Instruction::load_half_indexed(offset + at),
            Self::At(offset) => Instruction::load_half(offset + at),
        }
    }

    const fn word(self, at: u32) -> Instruction {
        match self {
            Self::Indexed(offset) => Instruction::load_word_indexed(offset + at),
            Self::At(offset) => Instruction::load_word(offset + at),
        }
    }

    /// The place that lies so many bytes behind it.
    const fn behind(self, bytes: u32) -> Self {
        match self {
            Self::Indexed(offset) => Self::Indexed(offset + bytes),
            Self::At(offset) => Self::At(offset + bytes),
        }
    }

    /// Bytes in front of it in the shortest frame.
    const fn shortest(self) -> u32 {
        match self {
            Self::Indexed(offset) => offset + IPV4_HEADER_BYTES,
            Self::At(offset) => offset,
        }
    }
}

enum Mark {
    Just(Instruction),
    KeepIfEqual(u32),
    KeepUnlessEqual(u32),
    KeepIfGreater(u32),
    KeepUnlessGreater(u32),
}

impl UdpFilter {
    /// The filter as a classic BPF program over Ethernet frames.
    #[must_use]
    pub fn program(&self) -> Vec<Instruction> {
        self.tests().0.finish()
    }

    /// The same without the datagrams that name another lane.
    #[must_use]
    pub fn program_of_lane(&self, mark: &LaneMark) -> Vec<Instruction> {
        let (tests, payload) = self.tests();
        let marks = mark.tests(payload);
        let mut program = tests.finish();
        // Behind the last test stand "keep" and "drop"; the marks take the place of "keep", so what
        // jumps to "drop" has to jump on to the new one, past the marks and the two of their own.
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
            // "drop" comes right behind the marks, "keep" after it.
            let keep = (count - at) as u8;
            match mark {
                Mark::Just(instruction) => instruction,
                Mark::KeepIfEqual(value) => Instruction::jump_if_equal(value, keep, 0),
                Mark::KeepUnlessEqual(value) => Instruction::jump_if_equal(value, 0, keep),
                Mark::KeepIfGreater(value) => Instruction::jump_if_greater(value, keep, 0),
                Mark::KeepUnlessGreater(value) => Instruction::jump_if_greater(value, 0, keep),
            }
        }));
        program.push(Instruction::finish(DROP));
        program.extend(last);
        program
    }

    fn tests(&self) -> (Tests, Place) {
        let ports = [(SOURCE_PORT, self.source_port), (DESTINATION_PORT, self.destination_port)];
        let mut tests = Tests(Vec::new());
        let payload = tests.require_datagram((Way::From, self.source), &ports);
        if let Some((network, prefix_len)) = self.destination_network {
            tests.require_network((Way::To, network), prefix_len);
        }
        (tests, payload)
    }
}

/// Which way packets of a conversation go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// From the partner.
    From,
    /// To the partner.
    To,
}

/// A program of tests that all have to hold. A test that fails skips one instruction less than it
/// takes to get past the end; [`Tests::finish`] sets that distance once it is known.
struct Tests(Vec<Step>);

enum Step {
    Just(Instruction),
    Require(u32),
    Refuse(u32),
    RefuseAny(u32),
}

impl Tests {
    fn just(&mut self, instruction: Instruction) {
        self.0.push(Step::Just(instruction));
    }

    fn require(&mut self, load: Instruction, value: u32) {
        self.0.extend([Step::Just(load), Step::Require(value)]);
    }

    fn refuse_any(&mut self, load: Instruction, mask: u32) {
        self.0.extend([Step::Just(load), Step::RefuseAny(mask)]);
    }

    /// UDP datagrams from or to an address, with these ports; tells where their payload begins.
    fn require_datagram(
        &mut self,
        (way, address): (Way, IpAddr),
        ports: &[(u32, Option<u16>)],
    ) -> Place {
        // What follows an IPv4 header is found by its length; IPv6 headers have but one.
        let udp = match address {
            IpAddr::V4(address) => {
                let address_at = IPV4_ADDRESS_AT[way as usize];
                self.require(Instruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV4);
                self.require(Instruction::load_byte(IP_OFFSET + 9), PROTOCOL_UDP);
                self.refuse_any(Instruction::load_half(IP_OFFSET + 6), FRAGMENT_BITS);
                self.require(Instruction::load_word(address_at), address.to_bits());
                self.just(Instruction::load_index_ipv4_length(IP_OFFSET));
                Place::Indexed(IP_OFFSET)
            }
            IpAddr::V6(address) => {
                let address_at = IPV6_ADDRESS_AT[way as usize];
                self.require(Instruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV6);
                self.require(Instruction::load_byte(IP_OFFSET + 6), PROTOCOL_UDP);
                for (offset, word) in (address_at..).step_by(4).zip(words(address.octets())) {
                    self.require(Instruction::load_word(offset), word);
                }
                Place::At(IP_OFFSET + IPV6_HEADER_BYTES)
            }
        };
        for &(offset, port) in ports {
            if let Some(port) = port {
                self.require(udp.half(offset), port.into());
            }
        }
        udp.behind(UDP_HEADER_BYTES)
    }

    /// Packets from or to a network of the family that was required before.
    fn require_network(&mut self, (way, network): (Way, IpAddr), prefix_len: u8) {
        let (address_at, words) = match network {
            IpAddr::V4(address) => (IPV4_ADDRESS_AT[way as usize], vec![address.to_bits()]),
            IpAddr::V6(address) => (IPV6_ADDRESS_AT[way as usize], words(address.octets()).into()),
        };
        let first_bits = (0..).step_by(32);
        for ((offset, word), first_bit) in (address_at..).step_by(4).zip(words).zip(first_bits) {
            let bits = u32::from(prefix_len).saturating_sub(first_bit).min(32);
            if bits > 0 {
                let mask = u32::MAX << (32 - bits);
                self.just(Instruction::load_word(offset));
                self.require(Instruction::and(mask), word & mask);
            }
        }
    }

    /// Ends the program: keep the packet if every test held, or else drop it.
    fn finish(self) -> Vec<Instruction> {
        let keep_at = self.0.len();
        let place = |(at, step)| {
            // From behind this instruction to the one behind `keep_at`. The longest program has
            // some 40 instructions, so a jump always fits its byte.
            let to_drop = (keep_at - at) as u8;
            match step {
                Step::Just(instruction) => instruction,
                Step::Require(value) => Instruction::jump_if_equal(value, 0, to_drop),
                Step::Refuse(value) => Instruction::jump_if_equal(value, to_drop, 0),
                Step::RefuseAny(mask) => Instruction::jump_if_any_set(mask, to_drop, 0),
            }
        };
        let mut program: Vec<_> = self.0.into_iter().enumerate().map(place).collect();
        program.extend([Instruction::finish(KEEP), Instruction::finish(DROP)]);
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
            assert_eq!(program[drop_at], Instruction::finish(DROP));
            assert_eq!(program[drop_at - 1], Instruction::finish(KEEP));
            for (at, step) in program.iter().enumerate() {
                let jump = usize::from(step.jump_true.max(step.jump_false));
                assert!(jump == 0 || at + 1 + jump == drop_at, "{at}: {step:?}");
            }
            assert!(program.iter().filter(|step| step.jump_false > 0).count() >= 5, "{program:?}");
        }
    }
}
