//! Unicast negotiation: clients request messages and cancel grants (IEEE 1588-2019, clause 16.1).

use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::tlv::{UnicastCancellation, UnicastNegotiationTlv};
use horolog_wire::ptp::{Message, MessageType, PortIdentity, PtpMessageBody};

use crate::address::{PtpAddress, PtpDestination};
use crate::clock_state::{PortState, PtpClockProperties};
use crate::compose::{self, NEGOTIATIONS_MAX, SUFFIX_LEN_MAX};
use crate::grants::GrantHolder;
use crate::port::{ClockPort, Outbox, ReceivedPtpMessage};
use crate::refusal::PtpRefusal;
use crate::settings::DelayMechanism;

/// TLVs of unicast negotiation (IEEE 1588-2019, clause 16.1) for one Signaling message.
struct NegotiationTlvs {
    bytes: [u8; SUFFIX_LEN_MAX],
    length: usize,
}

impl NegotiationTlvs {
    const fn new() -> Self {
        Self { bytes: [0; SUFFIX_LEN_MAX], length: 0 }
    }

    /// Adds a TLV; there is room for [`NEGOTIATIONS_MAX`].
    fn push(&mut self, negotiation: UnicastNegotiationTlv) {
        self.length += negotiation.emit(&mut self.bytes[self.length..]);
    }
}

impl ClockPort {
    /// Processes the requests in a client's Signaling message, up to [`NEGOTIATIONS_MAX`]; any
    /// others are ignored. All responses are sent to the client in one message.
    pub(crate) fn signaling(
        &mut self,
        message: &Message<'_>,
        target: PortIdentity,
        arrival: &ReceivedPtpMessage<'_>,
        clock: &PtpClockProperties,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        if !target.matches(self.identity) {
            return Err(PtpRefusal::Target);
        }
        if arrival.group {
            return Err(PtpRefusal::Group);
        }
        let source = message.header.source;
        let client = GrantHolder::new(arrival.from, source);
        let may_grant = self.state == PortState::Master && clock.usable;
        let denial = match (may_grant, arrival.admitted) {
            (false, _) => Some(PtpRefusal::State),
            (true, false) => Some(PtpRefusal::NotAdmitted),
            (true, true) => None,
        };
        let mut answers = NegotiationTlvs::new();
        let negotiations =
            message.tlvs().flatten().filter_map(|tlv| UnicastNegotiationTlv::from_tlv(&tlv));
        for negotiation in negotiations.take(NEGOTIATIONS_MAX) {
            let Ok(negotiation) = negotiation else {
                self.counts.count_refused(PtpRefusal::Length);
                continue;
            };
            match negotiation {
                UnicastNegotiationTlv::Request { kind, log_interval, duration_s } => {
                    let granted = match denial {
                        Some(reason) => Err(reason),
                        None if kind == MessageType::DelayResp
                            && self.settings.delay != DelayMechanism::EndToEnd =>
                        {
                            Err(PtpRefusal::Mechanism)
                        }
                        None => self
                            .grants
                            .request(client, kind, log_interval, duration_s, now)
                            .ok_or(PtpRefusal::Denied),
                    };
                    if let Err(reason) = granted {
                        self.counts.count_refused(reason);
                    }
                    answers.push(UnicastNegotiationTlv::Grant {
                        kind,
                        log_interval,
                        duration_s: granted.unwrap_or(0),
                        renewal_invited: granted.is_ok(),
                    });
                }
                UnicastNegotiationTlv::Cancel(ended) if !ended.maintain_request => {
                    if !self.grants.cancel(client, ended.kind) {
                        self.counts.count_refused(PtpRefusal::NotGranted);
                    }
                    answers.push(UnicastNegotiationTlv::AcknowledgeCancel(ended));
                }
                // This clock requests no grants, and its own cancellations need no confirmation.
                UnicastNegotiationTlv::Cancel(_)
                | UnicastNegotiationTlv::Grant { .. }
                | UnicastNegotiationTlv::AcknowledgeCancel(_) => {}
            }
        }
        if answers.length > 0 {
            self.send_signaling(arrival.from, source, &answers, out);
        }
        Ok(())
    }

    /// Ends all grants and notifies their holders (clause 16.1.4.3).
    pub(crate) fn cancel_grants(&mut self, out: &mut impl Outbox) {
        let mut ended = self.grants.take_all().peekable();
        while let Some(&(client, _)) = ended.peek() {
            let mut cancels = NegotiationTlvs::new();
            while let Some((_, kind)) = ended.next_if(|(of, _)| *of == client) {
                cancels.push(UnicastNegotiationTlv::Cancel(cancellation(kind)));
            }
            self.send_signaling(client.address, client.port(), &cancels, out);
        }
    }

    fn send_signaling(
        &mut self,
        address: PtpAddress,
        target: PortIdentity,
        negotiations: &NegotiationTlvs,
        out: &mut impl Outbox,
    ) {
        let to = PtpDestination::To(address);
        let header = self.header(to, self.signaling_id);
        self.signaling_id = self.signaling_id.wrapping_add(1);
        let suffix = &negotiations.bytes[..negotiations.length];
        let message = Message { header, body: PtpMessageBody::Signaling(target), suffix };
        compose::send_message(out, &mut self.counts, to, &message, false);
    }
}

/// Returns the TLV data that cancel a grant.
const fn cancellation(kind: MessageType) -> UnicastCancellation {
    UnicastCancellation { kind, maintain_request: false, maintain_grant: false }
}
