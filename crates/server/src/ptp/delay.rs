//! Response to a `Delay_Req`, with and without NetSync Monitor, as a pure function of the port, the
//! request and its receive time. The socket path calls it, and the XDP program is compared with it
//! byte for byte.

use horolog_wire::ptp::monitor::{MonitorResponse, REQUEST};
use horolog_wire::ptp::{
    Header, Message, NO_INTERVAL, PortIdentity, PtpFlags, PtpMessageBody, PtpTimestamp,
};

use super::compose::{MESSAGE_LEN_MAX, check};
use super::{MINOR_VERSION, PtpRefusal};

/// Port data needed to respond to a `Delay_Req`. It exists only while the port is a master that
/// responds to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastPort<'a> {
    /// Identity of the port.
    pub identity: PortIdentity,
    /// Domain number.
    pub domain: u8,
    /// `SdoId` of its profile.
    pub sdo_id: u16,
    /// Minimum interval of requests that a response to the group carries, log2 of seconds.
    pub log_min_delay_req: i8,
    /// True if requests to the group are answered, to the group.
    pub multicast: bool,
    /// True if requests to the port itself are answered without a grant.
    pub hybrid: bool,
    /// NetSync Monitor response; `None` if it is not answered.
    pub monitor: Option<MonitorResponse<'a>>,
}

/// Arrival context of a `Delay_Req`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayReqContext {
    /// True if it was sent to the group.
    pub group: bool,
    /// True if its sender holds a grant for responses.
    pub granted: bool,
    /// True if its sender is on the link or on the list, and may be sent more bytes than it sent.
    pub admitted: bool,
}

/// `Delay_Resp`, and further messages owed.
#[derive(Clone, Debug)]
pub struct DelayAnswer {
    buffer: [u8; MESSAGE_LEN_MAX],
    length: usize,
    /// True if NetSync Monitor was requested: a Sync with the sequence number of the request must
    /// follow, to the requester.
    pub owes_sync: bool,
}

impl DelayAnswer {
    /// Returns the message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl FastPort<'_> {
    /// Responds to a received request (IEEE 1588-2019, clause 11.3.2).
    pub fn answer_bytes(
        &self,
        request: &[u8],
        context: DelayReqContext,
        receive: PtpTimestamp,
    ) -> Result<DelayAnswer, PtpRefusal> {
        let (message, _) = Message::parse(request)?;
        check(&message, (self.domain, self.sdo_id), self.identity)?;
        self.answer(&message, context, receive)
    }

    /// Responds to a request that passed [`check`].
    pub(super) fn answer(
        &self,
        request: &Message<'_>,
        context: DelayReqContext,
        receive: PtpTimestamp,
    ) -> Result<DelayAnswer, PtpRefusal> {
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
        Ok(DelayAnswer { buffer, length, owes_sync: monitor.is_some() })
    }

    /// Returns the header of a response: sequence number and correction are those of the request
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

/// Returns true if a `Delay_Req` requests NetSync Monitor.
fn is_monitor(request: &Message<'_>) -> bool {
    request.tlvs().flatten().any(|tlv| tlv.number == REQUEST)
}
