//! The filter that a generator of UDP datagrams sets on its packet socket, so that the kernel hands
//! up the replies and nothing else.

use std::net::{IpAddr, SocketAddr};

use horolog_sys::filter::Instruction;

const ETHERTYPE_OFFSET: u32 = 12;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// Where the IP header starts. The kernel takes a VLAN tag off before packet sockets see the frame.
const IP_OFFSET: u32 = 14;
const IPV6_HEADER_BYTES: u32 = 40;
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
}

impl UdpFilter {
    /// The filter as a classic BPF program over Ethernet frames.
    #[must_use]
    pub fn program(&self) -> Vec<Instruction> {
        let ports = [(SOURCE_PORT, self.source_port), (DESTINATION_PORT, self.destination_port)];
        program((self.source, Way::From), ports, None)
    }
}

/// Which way packets of a conversation go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the partner.
    From,
    /// To the partner.
    To,
}

/// The program that keeps nothing.
pub(crate) const KEEP_NOTHING: Instruction = Instruction::finish(DROP);

/// A program for what goes one way between this host and `partner`, and has none of the bits of a
/// mask set in the word at an offset of its payload. It ends with the instruction that drops.
pub(crate) fn conversation(
    partner: SocketAddr,
    way: Way,
    (offset, mask): (u32, u32),
) -> Vec<Instruction> {
    let port = Some(partner.port());
    let ports = match way {
        Way::From => [(SOURCE_PORT, port), (DESTINATION_PORT, None)],
        Way::To => [(SOURCE_PORT, None), (DESTINATION_PORT, port)],
    };
    let word = (mask != 0).then_some((UDP_HEADER_BYTES + offset, mask));
    program((partner.ip(), way), ports, word)
}

/// A program for UDP datagrams from or to an address, with these ports, and with none of the bits
/// of a mask set in the word at an offset behind the IP header.
fn program(
    (address, way): (IpAddr, Way),
    ports: [(u32, Option<u16>); 2],
    word: Option<(u32, u32)>,
) -> Vec<Instruction> {
    // What follows an IPv4 header is found by its length; IPv6 headers have but one.
    type Load = fn(u32) -> Instruction;
    let mut tests = Tests(Vec::new());
    let (udp, load_half, load_word): (u32, Load, Load) = match address {
        IpAddr::V4(address) => {
            let address_at = IP_OFFSET + if way == Way::From { 12 } else { 16 };
            tests.require(Instruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV4);
            tests.require(Instruction::load_byte(IP_OFFSET + 9), PROTOCOL_UDP);
            tests.refuse_any(Instruction::load_half(IP_OFFSET + 6), FRAGMENT_BITS);
            tests.require(Instruction::load_word(address_at), address.to_bits());
            tests.just(Instruction::load_index_ipv4_length(IP_OFFSET));
            (IP_OFFSET, Instruction::load_half_indexed, Instruction::load_word_indexed)
        }
        IpAddr::V6(address) => {
            let address_at = IP_OFFSET + if way == Way::From { 8 } else { 24 };
            tests.require(Instruction::load_half(ETHERTYPE_OFFSET), ETHERTYPE_IPV6);
            tests.require(Instruction::load_byte(IP_OFFSET + 6), PROTOCOL_UDP);
            for (offset, word) in (address_at..).step_by(4).zip(words(address.octets())) {
                tests.require(Instruction::load_word(offset), word);
            }
            (IP_OFFSET + IPV6_HEADER_BYTES, Instruction::load_half, Instruction::load_word)
        }
    };
    for (offset, port) in ports {
        if let Some(port) = port {
            tests.require(load_half(udp + offset), port.into());
        }
    }
    if let Some((offset, mask)) = word {
        tests.refuse_any(load_word(udp + offset), mask);
    }
    tests.finish()
}

/// A program of tests that all have to hold. A test that fails skips one instruction less than it
/// takes to get past the end; [`Tests::finish`] sets that distance once it is known.
struct Tests(Vec<Step>);

enum Step {
    Just(Instruction),
    Require(u32),
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

    /// Ends the program: keep the packet if every test held, or else drop it.
    fn finish(self) -> Vec<Instruction> {
        let keep_at = self.0.len();
        let place = |(at, step)| {
            // From behind this instruction to the one behind `keep_at`. The longest program has
            // some 20 instructions, so a jump always fits its byte.
            let to_drop = (keep_at - at) as u8;
            match step {
                Step::Just(instruction) => instruction,
                Step::Require(value) => Instruction::jump_if_equal(value, 0, to_drop),
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
mod tests {
    use super::*;

    #[test]
    fn every_failing_test_ends_at_the_instruction_that_drops() {
        for source in ["192.0.2.1", "2001:db8::1"] {
            let filter = UdpFilter {
                source: source.parse().unwrap(),
                source_port: Some(123),
                destination_port: Some(32_768),
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
