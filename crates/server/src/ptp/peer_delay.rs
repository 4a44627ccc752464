//! The answer to a neighbour that measures the delay to it (IEEE 1588-2019, clause 11.4). A master
//! does not ask in turn: it would have no use for the answer.

use horolog_wire::ptp::{Body, Flags, Message};

use super::{Arrival, ClockState, DelayMechanism, Destination, Outbox, Port, Refusal, compose};

impl Port {
    /// Answers a `Pdelay_Req`, in two steps. It does so in every state, but not while its clock is
    /// unusable.
    ///
    /// The standard has the follow-up carry the correction of the request (clause 11.4.2). Here the
    /// answer does, so that the follow-up can be made from the answer alone. Whoever asked adds the
    /// corrections of both up (clause 11.4.3), so it is told the same.
    pub(super) fn peer_delay_request(
        &mut self,
        request: &Message<'_>,
        arrival: &Arrival<'_>,
        clock: &ClockState,
        out: &mut impl Outbox,
    ) -> Result<(), Refusal> {
        if self.settings.delay != DelayMechanism::PeerToPeer {
            return Err(Refusal::Mechanism);
        }
        if !clock.usable {
            return Err(Refusal::State);
        }
        if !arrival.on_link {
            return Err(Refusal::NotAdmitted);
        }
        let to = if arrival.group { Destination::PeerGroup } else { Destination::To(arrival.from) };
        let mut header = self.header(to, request.header.sequence_id);
        header.flags = header.flags.with(Flags::TWO_STEP);
        header.correction = request.header.correction;
        let body =
            Body::PdelayResp { receive: arrival.received, requesting: request.header.source };
        compose::send(out, &mut self.counts, to, &Message::new(header, body), true);
        Ok(())
    }
}
