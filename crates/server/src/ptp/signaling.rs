//! Negotiations: clients ask for messages of their own, and end them (IEEE 1588-2019, clause 16.1).

use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ptp::tlv::{Ended, Unicast};
use horolog_wire::ptp::{Body, Message, MessageType, PortIdentity};

use super::compose::{NEGOTIATIONS_MAX, SUFFIX_LEN_MAX};
use super::grants::Client;
use super::{
    Address, Arrival, ClockState, DelayMechanism, Destination, Outbox, Port, PortState, Refusal,
    compose,
};

/// What is said to one client, in one message.
struct Negotiations {
    bytes: [u8; SUFFIX_LEN_MAX],
    length: usize,
}

impl Negotiations {
    const fn new() -> Self {
        Self { bytes: [0; SUFFIX_LEN_MAX], length: 0 }
    }

    /// Adds one, of which there are [`NEGOTIATIONS_MAX`] at most.
    fn push(&mut self, negotiation: Unicast) {
        self.length += negotiation.emit(&mut self.bytes[self.length..]);
    }
}

impl Port {
    /// Takes what a client asks for. It answers to its address alone, whatever it was sent to, in
    /// one message. What is beyond the first few negotiations of a message is passed over.
    pub(super) fn signaling(
        &mut self,
        message: &Message<'_>,
        target: PortIdentity,
        arrival: &Arrival<'_>,
        clock: &ClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), Refusal> {
        if !target.targets(self.identity) {
            return Err(Refusal::Target);
        }
        if arrival.group {
            return Err(Refusal::Group);
        }
        let source = message.header.source;
        let client = Client::new(arrival.from, source);
        let may_grant = self.state == PortState::Master && clock.usable;
        let denial = match (may_grant, arrival.admitted) {
            (false, _) => Some(Refusal::State),
            (true, false) => Some(Refusal::NotAdmitted),
            (true, true) => None,
        };
        let mut answers = Negotiations::new();
        let negotiations = message.tlvs().flatten().filter_map(|tlv| Unicast::from_tlv(&tlv));
        for negotiation in negotiations.take(NEGOTIATIONS_MAX) {
            let Ok(negotiation) = negotiation else {
                self.counts.count_refused(Refusal::Length);
                continue;
            };
            match negotiation {
                Unicast::Request { kind, log_interval, duration_s } => {
                    let granted = match denial {
                        Some(reason) => Err(reason),
                        None if kind == MessageType::DelayResp
                            && self.settings.delay != DelayMechanism::EndToEnd =>
                        {
                            Err(Refusal::Mechanism)
                        }
                        None => self
                            .grants
                            .request(client, kind, log_interval, duration_s, now)
                            .ok_or(Refusal::Denied),
                    };
                    if let Err(reason) = granted {
                        self.counts.count_refused(reason);
                    }
                    answers.push(Unicast::Grant {
                        kind,
                        log_interval,
                        duration_s: granted.unwrap_or(0),
                        renewal_invited: granted.is_ok(),
                    });
                }
                Unicast::Cancel(ended) if !ended.maintain_request => {
                    if !self.grants.cancel(client, ended.kind) {
                        self.counts.count_refused(Refusal::NotGranted);
                    }
                    answers.push(Unicast::AcknowledgeCancel(ended));
                }
                // Nothing was granted to this clock; and what it ended has ended already.
                Unicast::Cancel(_) | Unicast::Grant { .. } | Unicast::AcknowledgeCancel(_) => {}
            }
        }
        if answers.length > 0 {
            self.send_signaling(arrival.from, source, &answers, out);
        }
        Ok(())
    }

    /// Tells all clients that what was granted to them has ended (clause 16.1.4.3).
    pub(super) fn cancel_grants(&mut self, out: &mut impl Outbox) {
        let mut ended = self.grants.take_all().peekable();
        while let Some(&(client, _)) = ended.peek() {
            let mut cancels = Negotiations::new();
            while let Some((_, kind)) = ended.next_if(|(of, _)| *of == client) {
                cancels.push(Unicast::Cancel(cancel(kind)));
            }
            self.send_signaling(client.address, client.port(), &cancels, out);
        }
    }

    fn send_signaling(
        &mut self,
        address: Address,
        target: PortIdentity,
        negotiations: &Negotiations,
        out: &mut impl Outbox,
    ) {
        let to = Destination::To(address);
        let header = self.header(to, self.signaling_id);
        self.signaling_id = self.signaling_id.wrapping_add(1);
        let suffix = &negotiations.bytes[..negotiations.length];
        let message = Message { header, body: Body::Signaling(target), suffix };
        compose::send(out, &mut self.counts, to, &message, false);
    }
}

/// The end of a grant, with nothing kept up.
const fn cancel(kind: MessageType) -> Ended {
    Ended { kind, maintain_request: false, maintain_grant: false }
}
