//! The filter of a tap: what this host and one partner say to one another, or a part of it.

use std::net::SocketAddr;

use horolog_sys::filter::{Instruction, PACKET_OUTGOING};
use horolog_wire::ethernet::{self, Header, MacAddress};
use horolog_wire::frame::UdpFrame;

use super::{DESTINATION_PORT, DROP, ETHERTYPE_OFFSET, Place, SOURCE_PORT, Step, Tests, Way};

/// Where the addresses stand in an Ethernet header.
const DESTINATION_MAC: u32 = 0;
const SOURCE_MAC: u32 = 6;

/// An end of a conversation that is not this host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// UDP datagrams come from there or go there.
    Udp(SocketAddr),
    /// Frames of this type do.
    Ethernet(u16, MacAddress),
}

/// What a tap sees: all that comes from some ends, and all that this host sends to some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conversation {
    /// Ends that the partner sends from.
    pub from: Vec<End>,
    /// Ends that this host sends to.
    pub to: Vec<End>,
}

/// Which of a conversation's packets are kept: all, or the questions and answers whose 32-bit words
/// at these offsets of the payload have none of the bits of `mask` set. Where a reply brings the
/// word back that its request had, both are kept or neither is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Where the word stands in what is sent to the partner.
    pub sent_offset: u32,
    /// Where it stands in what the partner sends.
    pub received_offset: u32,
    /// The bits that have to be zero; with none, everything is kept.
    pub mask: u32,
    /// What the partner sends besides answers, where it does.
    pub besides: Option<Besides>,
}

/// What a partner sends that brings nothing of a request back: a sample of its own is kept of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Besides {
    /// The low four bits of the payload's first byte in answers; all else is besides.
    pub answer_kind: u8,
    /// Where the word stands that it is chosen by.
    pub offset: u32,
    /// The bits of it that have to be zero.
    pub mask: u32,
}

/// Which payloads of those that go one way a test is for.
#[derive(Clone, Copy)]
enum Kind {
    Any,
    Is(u8),
    IsNot(u8),
}

impl Conversation {
    /// Everything is said between this host and one UDP port.
    #[must_use]
    pub fn with(partner: SocketAddr) -> Self {
        let ends = vec![End::Udp(partner)];
        Self { from: ends.clone(), to: ends }
    }

    /// Whether a frame comes from the partner.
    #[must_use]
    pub fn is_answer(&self, frame: &[u8]) -> bool {
        self.from.iter().any(|end| match end {
            End::Udp(partner) => UdpFrame::parse(frame).is_ok_and(|frame| {
                (frame.source.ip(), frame.source.port()) == (partner.ip(), partner.port())
            }),
            End::Ethernet(ether_type, partner) => Header::parse(frame).is_ok_and(|(header, _)| {
                (header.ether_type, header.source) == (*ether_type, *partner)
            }),
        })
    }

    /// The program that keeps a sample of it. Where `tells_outgoing`, the interface shows what this
    /// host sends as such, and what others send to the same group is not taken for it.
    pub(crate) fn program(&self, sample: &Sample, tells_outgoing: bool) -> Vec<Instruction> {
        let answers = (sample.received_offset, sample.mask);
        let chosen = match sample.besides {
            Some(Besides { answer_kind, offset, mask }) if sample.mask != 0 => {
                vec![(Kind::Is(answer_kind), answers), (Kind::IsNot(answer_kind), (offset, mask))]
            }
            _ => vec![(Kind::Any, answers)],
        };
        let received = self.from.iter().flat_map(|end| {
            chosen.iter().map(move |&(kind, word)| {
                let mut tests = Tests(Vec::new());
                tests.require_end(end, Way::From, kind, word);
                tests
            })
        });
        let sent = self.to.iter().map(|end| {
            let mut tests = Tests(Vec::new());
            if tells_outgoing {
                tests.require(Instruction::load_packet_type(), PACKET_OUTGOING);
            }
            tests.require_end(end, Way::To, Kind::Any, (sample.sent_offset, sample.mask));
            tests
        });
        let mut program = vec![KEEP_NOTHING];
        for tests in received.chain(sent) {
            // In the place of "drop", where all tests that fail lead to, stand those of the next.
            program.pop();
            program.extend(tests.finish());
        }
        program
    }
}

/// The program that keeps nothing.
pub(crate) const KEEP_NOTHING: Instruction = Instruction::finish(DROP);

impl Tests {
    /// What goes this way, is of a kind, and has none of the bits of a mask set in the word at an
    /// offset of its payload.
    fn require_end(&mut self, end: &End, way: Way, kind: Kind, (offset, mask): (u32, u32)) {
        let payload = match end {
            End::Udp(partner) => {
                let port = match way {
                    Way::From => SOURCE_PORT,
                    Way::To => DESTINATION_PORT,
                };
                self.require_datagram((way, partner.ip()), &[(port, Some(partner.port()))])
            }
            End::Ethernet(ether_type, MacAddress(octets)) => {
                let address = match way {
                    Way::From => SOURCE_MAC,
                    Way::To => DESTINATION_MAC,
                };
                // The first four octets fill a word, and the last two half of one.
                let octet = |at: usize| u32::from(octets[at]);
                let high = (0..4).fold(0, |word, at| word << 8 | octet(at));
                let low = octet(4) << 8 | octet(5);
                self.require(Instruction::load_half(ETHERTYPE_OFFSET), (*ether_type).into());
                self.require(Instruction::load_word(address), high);
                self.require(Instruction::load_half(address + 4), low);
                Place::At(ethernet::HEADER_LEN as u32)
            }
        };
        let mut first = || {
            self.just(payload.byte(0));
            self.just(Instruction::and(0xf));
        };
        match kind {
            Kind::Any => {}
            Kind::Is(kind) => {
                first();
                self.0.push(Step::Require(kind.into()));
            }
            Kind::IsNot(kind) => {
                first();
                self.0.push(Step::Refuse(kind.into()));
            }
        }
        if mask != 0 {
            self.refuse_any(payload.word(offset), mask);
        }
    }
}

#[cfg(test)]
mod tests;
