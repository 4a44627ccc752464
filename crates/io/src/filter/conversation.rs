//! Filter of a capture socket: the packets between this host and one other host, or a sample of
//! them.

use std::net::SocketAddr;

use horolog_sys::filter::{BpfInstruction, PACKET_OUTGOING};
use horolog_wire::ethernet::{self, Header, MacAddress};
use horolog_wire::frame::UdpFrame;

use super::{
    DESTINATION_PORT, DROP, ETHERTYPE_OFFSET, FieldBase, FilterStep, PacketDirection, SOURCE_PORT,
    Tests,
};

/// Offsets of the addresses in an Ethernet header.
const DESTINATION_MAC: u32 = 0;
const SOURCE_MAC: u32 = 6;

/// Remote end of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteEnd {
    /// UDP datagrams from or to this address.
    Udp(SocketAddr),
    /// Frames of this type from or to this address.
    Ethernet(u16, MacAddress),
}

/// Packets of a capture: all from some remote ends, and all that this host sends to some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conversation {
    /// Ends that the remote host sends from.
    pub from: Vec<RemoteEnd>,
    /// Ends that this host sends to.
    pub to: Vec<RemoteEnd>,
}

/// Sample of a conversation's packets: all, or the requests and replies whose 32-bit words at these
/// offsets of the payload have none of the bits of `mask` set. If a reply echoes the word of its
/// request, both pass or neither does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketSample {
    /// Offset of the word in sent packets.
    pub sent_offset: u32,
    /// Offset of the word in received packets.
    pub received_offset: u32,
    /// Bits that must be zero; none keeps everything.
    pub mask: u32,
    /// Sample of received packets other than replies, if there are any.
    pub extra: Option<ExtraSample>,
}

/// Sample of received packets that echo nothing of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtraSample {
    /// Low four bits of the payload's first byte in replies; all other packets are extra.
    pub answer_kind: u8,
    /// Offset of the word that selects them.
    pub offset: u32,
    /// Bits of it that must be zero.
    pub mask: u32,
}

/// Kind of payloads in one direction that a test applies to.
#[derive(Clone, Copy)]
enum PayloadKind {
    Any,
    Is(u8),
    IsNot(u8),
}

impl Conversation {
    /// Returns the conversation of this host with one UDP port.
    #[must_use]
    pub fn with(remote: SocketAddr) -> Self {
        let ends = vec![RemoteEnd::Udp(remote)];
        Self { from: ends.clone(), to: ends }
    }

    /// Returns true if a frame comes from the remote end.
    #[must_use]
    pub fn is_answer(&self, frame: &[u8]) -> bool {
        self.from.iter().any(|end| match end {
            RemoteEnd::Udp(remote) => UdpFrame::parse(frame).is_ok_and(|frame| {
                (frame.source.ip(), frame.source.port()) == (remote.ip(), remote.port())
            }),
            RemoteEnd::Ethernet(ether_type, remote) => {
                Header::parse(frame).is_ok_and(|(header, _)| {
                    (header.ether_type, header.source) == (*ether_type, *remote)
                })
            }
        })
    }

    /// Returns the program that keeps a sample of it. With `marks_outgoing`, the interface marks
    /// packets sent by this host, and packets of others to the same group are not taken for them.
    pub(crate) fn program(
        &self,
        sample: &PacketSample,
        marks_outgoing: bool,
    ) -> Vec<BpfInstruction> {
        let answers = (sample.received_offset, sample.mask);
        let chosen = match sample.extra {
            Some(ExtraSample { answer_kind, offset, mask }) if sample.mask != 0 => {
                vec![
                    (PayloadKind::Is(answer_kind), answers),
                    (PayloadKind::IsNot(answer_kind), (offset, mask)),
                ]
            }
            _ => vec![(PayloadKind::Any, answers)],
        };
        let received = self.from.iter().flat_map(|end| {
            chosen.iter().map(move |&(kind, word)| {
                let mut tests = Tests(Vec::new());
                tests.require_end(end, PacketDirection::From, kind, word);
                tests
            })
        });
        let sent = self.to.iter().map(|end| {
            let mut tests = Tests(Vec::new());
            if marks_outgoing {
                tests.require(BpfInstruction::load_packet_type(), PACKET_OUTGOING);
            }
            tests.require_end(
                end,
                PacketDirection::To,
                PayloadKind::Any,
                (sample.sent_offset, sample.mask),
            );
            tests
        });
        let mut program = vec![KEEP_NOTHING];
        for tests in received.chain(sent) {
            // Replaces "drop", the target of all failed tests, by the next tests.
            program.pop();
            program.extend(tests.finish());
        }
        program
    }
}

/// Instruction that keeps nothing.
pub(crate) const KEEP_NOTHING: BpfInstruction = BpfInstruction::finish(DROP);

impl Tests {
    /// Requires packets in this direction and of a kind, with none of the bits of a mask set in the
    /// word at an offset of the payload.
    fn require_end(
        &mut self,
        end: &RemoteEnd,
        way: PacketDirection,
        kind: PayloadKind,
        (offset, mask): (u32, u32),
    ) {
        let payload = match end {
            RemoteEnd::Udp(remote) => {
                let port = match way {
                    PacketDirection::From => SOURCE_PORT,
                    PacketDirection::To => DESTINATION_PORT,
                };
                self.require_datagram((way, remote.ip()), &[(port, Some(remote.port()))])
            }
            RemoteEnd::Ethernet(ether_type, MacAddress(octets)) => {
                let address = match way {
                    PacketDirection::From => SOURCE_MAC,
                    PacketDirection::To => DESTINATION_MAC,
                };
                // The first four octets fill a word, and the last two half of one.
                let octet = |at: usize| u32::from(octets[at]);
                let high = (0..4).fold(0, |word, at| word << 8 | octet(at));
                let low = octet(4) << 8 | octet(5);
                self.require(BpfInstruction::load_half(ETHERTYPE_OFFSET), (*ether_type).into());
                self.require(BpfInstruction::load_word(address), high);
                self.require(BpfInstruction::load_half(address + 4), low);
                FieldBase::At(ethernet::HEADER_LEN as u32)
            }
        };
        let mut first = || {
            self.just(payload.byte(0));
            self.just(BpfInstruction::and(0xf));
        };
        match kind {
            PayloadKind::Any => {}
            PayloadKind::Is(kind) => {
                first();
                self.0.push(FilterStep::Require(kind.into()));
            }
            PayloadKind::IsNot(kind) => {
                first();
                self.0.push(FilterStep::Refuse(kind.into()));
            }
        }
        if mask != 0 {
            self.refuse_any(payload.word(offset), mask);
        }
    }
}

#[cfg(test)]
mod tests;
