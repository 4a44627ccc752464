//! Filter of a capture socket: all packets of a conversation between this host and remote ends, or
//! a sample of them.

use std::net::SocketAddr;

use horolog_sys::filter::{BpfInstruction, PACKET_OUTGOING};
use horolog_wire::ethernet::{self, Header, MacAddress};
use horolog_wire::frame::UdpFrame;

use super::{
    DESTINATION_PORT, DROP, ETHERTYPE_OFFSET, FieldOffsetBase, FilterStep, PacketDirection,
    PacketPredicates, SOURCE_PORT,
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

/// Remote ends whose packets are captured: those from any of the ends in `from`, and those to any
/// of the ends in `to`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteEndSelection {
    /// Remote ends whose packets are captured on ingress.
    pub from: Vec<RemoteEnd>,
    /// Remote ends whose packets are captured on egress.
    pub to: Vec<RemoteEnd>,
}

/// Rule by which the packets of a conversation are sampled: those in which the 32-bit word at the
/// offset of their direction in the payload (of the UDP datagram or Ethernet frame) has no bit of
/// `mask` set. If a reply echoes its request's word, both are sampled or neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketSamplingRule {
    /// Offset of the word in sent packets, in bytes.
    pub sent_offset: u32,
    /// Offset of the word in received packets, in bytes.
    pub received_offset: u32,
    /// Bits that must be zero; 0 selects every packet.
    pub mask: u32,
    /// Separate rule for received packets that are not replies, if there are any; ignored if `mask`
    /// is 0.
    pub extra: Option<NonReplySamplingRule>,
}

/// Rule by which received packets that echo no word of a request are sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NonReplySamplingRule {
    /// Kind of a reply: the low four bits of the first payload byte. This rule applies to received
    /// packets of all other kinds.
    pub reply_kind: u8,
    /// Offset of the 32-bit word in the payload whose bits decide, in bytes.
    pub offset: u32,
    /// Bits of the word at `offset` that must be zero.
    pub mask: u32,
}

/// Condition on the kind of a payload: the low four bits of its first byte.
#[derive(Clone, Copy)]
enum PayloadKindFilter {
    Any,
    Kind(u8),
    OtherThan(u8),
}

impl RemoteEndSelection {
    /// Returns the conversation of this host with one remote UDP address and port.
    #[must_use]
    pub fn with_udp_remote(remote: SocketAddr) -> Self {
        let ends = vec![RemoteEnd::Udp(remote)];
        Self { from: ends.clone(), to: ends }
    }

    /// Returns true if the frame was sent by one of the remote ends in `from`.
    #[must_use]
    pub fn is_from_remote(&self, frame: &[u8]) -> bool {
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

    /// Returns the classic BPF program that keeps a sample of the conversation. With
    /// `marks_outgoing`, sent packets are recognised by the kernel's packet type, so that packets
    /// from other hosts to the same multicast group do not match.
    pub(crate) fn program(
        &self,
        sample: &PacketSamplingRule,
        marks_outgoing: bool,
    ) -> Vec<BpfInstruction> {
        let reply_word = (sample.received_offset, sample.mask);
        let received_words = match sample.extra {
            Some(NonReplySamplingRule { reply_kind: answer_kind, offset, mask })
                if sample.mask != 0 =>
            {
                vec![
                    (PayloadKindFilter::Kind(answer_kind), reply_word),
                    (PayloadKindFilter::OtherThan(answer_kind), (offset, mask)),
                ]
            }
            _ => vec![(PayloadKindFilter::Any, reply_word)],
        };
        let received = self.from.iter().flat_map(|end| {
            received_words.iter().map(move |&(kind, word)| {
                let mut tests = PacketPredicates(Vec::new());
                tests.require_remote_end(end, PacketDirection::FromRemote, kind, word);
                tests
            })
        });
        let sent = self.to.iter().map(|end| {
            let mut tests = PacketPredicates(Vec::new());
            if marks_outgoing {
                tests.require_equal(BpfInstruction::load_packet_type(), PACKET_OUTGOING);
            }
            tests.require_remote_end(
                end,
                PacketDirection::ToRemote,
                PayloadKindFilter::Any,
                (sample.sent_offset, sample.mask),
            );
            tests
        });
        let mut program = vec![KEEP_NOTHING];
        for tests in received.chain(sent) {
            // The next tests replace "drop", to which all failed tests jump.
            program.pop();
            program.extend(tests.finish());
        }
        program
    }
}

/// Instruction that drops every packet.
pub(crate) const KEEP_NOTHING: BpfInstruction = BpfInstruction::finish(DROP);

impl PacketPredicates {
    /// Requires packets of this direction and kind in which the word at `offset` of the payload has
    /// no bit of `mask` set.
    fn require_remote_end(
        &mut self,
        end: &RemoteEnd,
        direction: PacketDirection,
        kind: PayloadKindFilter,
        (offset, mask): (u32, u32),
    ) {
        let payload = match end {
            RemoteEnd::Udp(remote) => {
                let port = match direction {
                    PacketDirection::FromRemote => SOURCE_PORT,
                    PacketDirection::ToRemote => DESTINATION_PORT,
                };
                self.require_datagram((direction, remote.ip()), &[(port, Some(remote.port()))])
            }
            RemoteEnd::Ethernet(ether_type, MacAddress(octets)) => {
                let address = match direction {
                    PacketDirection::FromRemote => SOURCE_MAC,
                    PacketDirection::ToRemote => DESTINATION_MAC,
                };
                // The first four octets are compared as a 32-bit word, the last two as a 16-bit
                // one.
                let octet = |at: usize| u32::from(octets[at]);
                let high = (0..4).fold(0, |word, at| word << 8 | octet(at));
                let low = octet(4) << 8 | octet(5);
                self.require_equal(
                    BpfInstruction::load_half(ETHERTYPE_OFFSET),
                    (*ether_type).into(),
                );
                self.require_equal(BpfInstruction::load_word(address), high);
                self.require_equal(BpfInstruction::load_half(address + 4), low);
                FieldOffsetBase::Absolute(ethernet::HEADER_LEN as u32)
            }
        };
        let mut load_kind = || {
            self.push_instruction(payload.load_byte(0));
            self.push_instruction(BpfInstruction::and(0xf));
        };
        match kind {
            PayloadKindFilter::Any => {}
            PayloadKindFilter::Kind(kind) => {
                load_kind();
                self.0.push(FilterStep::RequireEqual(kind.into()));
            }
            PayloadKindFilter::OtherThan(kind) => {
                load_kind();
                self.0.push(FilterStep::RefuseEqual(kind.into()));
            }
        }
        if mask != 0 {
            self.refuse_any_bit(payload.load_word(offset), mask);
        }
    }
}

#[cfg(test)]
mod tests;
