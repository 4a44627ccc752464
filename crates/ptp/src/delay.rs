//! Response to a `Delay_Req`, with or without NetSync Monitor: a pure function of the port's data,
//! the request and its receive time. The sockets use it, and the XDP program must return the same
//! bytes.

use horolog_wire::ptp::monitor::{NetSyncMonitorResponse, REQUEST_TLV_TYPE};
use horolog_wire::ptp::{
    Header, Message, NO_INTERVAL, PortIdentity, PtpFlags, PtpMessageBody, PtpTimestamp,
};

use crate::address::PtpDestination;
use crate::clock_state::PtpClockProperties;
use crate::compose::{self, MESSAGE_LEN_MAX, MINOR_VERSION, check_message};
use crate::port::{ClockPort, Outbox, ReceivedPtpMessage};
use crate::refusal::PtpRefusal;
use crate::settings::DelayMechanism;

/// Data of a port from which a `Delay_Req` is answered; available only while the port is a master
/// with the end-to-end delay mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayResponder<'a> {
    /// Identity of the port.
    pub identity: PortIdentity,
    /// Domain number.
    pub domain: u8,
    /// `SdoId` of the profile.
    pub sdo_id: u16,
    /// Minimum interval between a client's requests, in log2 seconds, for responses to the group.
    pub log_min_delay_req: i8,
    /// True if requests to the multicast group are answered, to that group.
    pub multicast: bool,
    /// True if unicast requests are answered without a grant.
    pub hybrid: bool,
    /// NetSync Monitor data for the response; `None` if such requests are not answered.
    pub monitor: Option<NetSyncMonitorResponse<'a>>,
}

/// Classification of a `Delay_Req` by its destination, and by what its sender may receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayReqClassification {
    /// True if the request was sent to the multicast group.
    pub group: bool,
    /// True if the sender holds a grant for `Delay_Resp` messages.
    pub granted: bool,
    /// True if the sender may be sent more bytes than it sent: it is in a configured prefix or, if
    /// there is none, on the link.
    pub admitted: bool,
}

/// `Delay_Resp` message, and whether a Sync message must follow.
#[derive(Clone, Debug)]
pub struct DelayResponse {
    buffer: [u8; MESSAGE_LEN_MAX],
    length: usize,
    /// True if NetSync Monitor was requested: the requester must also be sent a Sync with the
    /// sequence number of the request.
    pub needs_sync: bool,
}

impl DelayResponse {
    /// Returns the bytes of the `Delay_Resp` message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl DelayResponder<'_> {
    /// Parses and answers the bytes of a request received at `receive` (IEEE 1588-2019, clause
    /// 11.3.2); the error is the reason for which it is refused.
    pub fn respond_to_bytes(
        &self,
        request: &[u8],
        context: DelayReqClassification,
        receive: PtpTimestamp,
    ) -> Result<DelayResponse, PtpRefusal> {
        let (message, _) = Message::parse(request)?;
        check_message(&message, (self.domain, self.sdo_id), self.identity)?;
        self.respond(&message, context, receive)
    }

    /// Answers a request that passed [`check_message`] and was received at `receive`; the error is
    /// the reason for which it is refused.
    pub(crate) fn respond(
        &self,
        request: &Message<'_>,
        context: DelayReqClassification,
        receive: PtpTimestamp,
    ) -> Result<DelayResponse, PtpRefusal> {
        let PtpMessageBody::DelayReq(_) = request.body else { return Err(PtpRefusal::Unwanted) };
        if context.group && !self.multicast {
            return Err(PtpRefusal::Group);
        }
        if !context.group && !self.hybrid && !context.granted {
            return Err(PtpRefusal::NotGranted);
        }
        let monitor = self.monitor.filter(|_| is_monitor(request) && !context.group);
        if monitor.is_some() && !context.admitted {
            return Err(PtpRefusal::NotAdmitted);
        }
        let header = self.header(&request.header, context.group);
        let body = PtpMessageBody::DelayResp { receive, requesting: request.header.source };
        let mut suffix = [0; MESSAGE_LEN_MAX];
        let suffix_len = monitor.map_or(0, |response| response.emit(&mut suffix));
        let message = Message { header, body, suffix: &suffix[..suffix_len] };
        let mut buffer = [0; MESSAGE_LEN_MAX];
        let length = message.emit(&mut buffer);
        Ok(DelayResponse { buffer, length, needs_sync: monitor.is_some() })
    }

    /// Returns the header of the response, with the sequence number and correction of the request
    /// (clause 13.8 and table 43).
    fn header(&self, request: &Header, group: bool) -> Header {
        Header {
            sdo_id: self.sdo_id,
            minor_version: MINOR_VERSION,
            domain: self.domain,
            flags: if group { PtpFlags(0) } else { PtpFlags::UNICAST },
            correction: request.correction,
            source: self.identity,
            sequence_id: request.sequence_id,
            log_interval: if group { self.log_min_delay_req } else { NO_INTERVAL },
        }
    }
}

/// Returns true if a `Delay_Req` contains a NetSync Monitor request.
fn is_monitor(request: &Message<'_>) -> bool {
    request.tlvs().flatten().any(|tlv| tlv.type_number == REQUEST_TLV_TYPE)
}

impl ClockPort {
    /// Answers a `Pdelay_Req` from the link in two steps, in every state of the port, if the port
    /// uses the peer-to-peer mechanism and the clock is usable; otherwise returns the reason for
    /// refusal.
    ///
    /// In the standard the `Pdelay_Resp_Follow_Up` carries the correction of the request (clause
    /// 11.4.2). Here the `Pdelay_Resp` carries it, so that the follow-up can be made from that
    /// message alone. The requester adds both corrections (clause 11.4.3), so that the result is
    /// the same.
    pub(crate) fn peer_delay_request(
        &mut self,
        request: &Message<'_>,
        arrival: &ReceivedPtpMessage<'_>,
        clock: &PtpClockProperties,
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
        header.flags = header.flags.union(PtpFlags::TWO_STEP);
        header.correction = request.header.correction;
        let body = PtpMessageBody::PdelayResp {
            receive: arrival.received,
            requesting: request.header.source,
        };
        compose::send_message(out, &mut self.counts, to, &Message::new(header, body), true);
        Ok(())
    }
}
