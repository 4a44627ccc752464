//! Responses to neighbours that measure the peer delay (IEEE 1588-2019, clause 11.4). This port
//! sends no such requests, because a master does not use the delay.

use horolog_wire::ptp::{Message, PtpFlags, PtpMessageBody};

use super::{
    ClockPort, DelayMechanism, Outbox, PtpArrival, PtpClockState, PtpDestination, PtpRefusal,
    compose,
};

impl ClockPort {
    /// Answers a `Pdelay_Req` in two steps, in every state of the port, unless the clock is
    /// unusable.
    ///
    /// In the standard the `Pdelay_Resp_Follow_Up` carries the correction of the request (clause
    /// 11.4.2). Here the `Pdelay_Resp` carries it, so that the follow-up can be made from that
    /// message alone. The requester adds both corrections (clause 11.4.3), so that the result is
    /// the same.
    pub(super) fn peer_delay_request(
        &mut self,
        request: &Message<'_>,
        arrival: &PtpArrival<'_>,
        clock: &PtpClockState,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        if self.settings.delay != DelayMechanism::PeerToPeer {
            return Err(PtpRefusal::Mechanism);
        }
        if !clock.usable {
            return Err(PtpRefusal::State);
        }
        if !arrival.on_link {
            return Err(PtpRefusal::NotAdmitted);
        }
        let to = if arrival.group {
            PtpDestination::PeerGroup
        } else {
            PtpDestination::To(arrival.from)
        };
        let mut header = self.header(to, request.header.sequence_id);
        header.flags = header.flags.with(PtpFlags::TWO_STEP);
        header.correction = request.header.correction;
        let body = PtpMessageBody::PdelayResp {
            receive: arrival.received,
            requesting: request.header.source,
        };
        compose::send_message(out, &mut self.counts, to, &Message::new(header, body), true);
        Ok(())
    }
}
