//! The answer to a `Delay_Req`, with and without NetSync Monitor, as one pure function of what the
//! port is, the request and when it was received. The socket path calls it, and the XDP program is
//! held against it byte for byte.

use horolog_wire::ptp::monitor::{REQUEST, Response};
use horolog_wire::ptp::{Body, Flags, Header, Message, NO_INTERVAL, PortIdentity, PtpTimestamp};

use super::compose::{MESSAGE_LEN_MAX, check};
use super::{MINOR_VERSION, Refusal};

/// What has to be known of a port to answer a `Delay_Req` as that port. There is one only while the
/// port is a master that answers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastPort<'a> {
    /// Which port it is.
    pub identity: PortIdentity,
    /// The domain.
    pub domain: u8,
    /// Whose profile it keeps to.
    pub sdo_id: u16,
    /// What an answer to the group says of how often clients may ask.
    pub log_min_delay_req: i8,
    /// Requests to the group are answered, to the group.
    pub multicast: bool,
    /// Requests to the port itself are answered without a grant.
    pub hybrid: bool,
    /// What NetSync Monitor is told; `None` where it is not answered.
    pub monitor: Option<Response<'a>>,
}

/// How a `Delay_Req` came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// To the group.
    pub group: bool,
    /// Its sender holds a grant for answers.
    pub granted: bool,
    /// Its sender is on the link or on the list, so it may be told more than it sent.
    pub admitted: bool,
}

/// A `Delay_Resp`, and what else is owed.
#[derive(Clone, Debug)]
pub struct DelayAnswer {
    buffer: [u8; MESSAGE_LEN_MAX],
    length: usize,
    /// NetSync Monitor asked: a Sync with the number of the request is to follow, to who asked.
    pub owes_sync: bool,
}

impl DelayAnswer {
    /// The message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl FastPort<'_> {
    /// Answers a request as it came (IEEE 1588-2019, clause 11.3.2).
    pub fn answer_bytes(
        &self,
        request: &[u8],
        asked: Asked,
        receive: PtpTimestamp,
    ) -> Result<DelayAnswer, Refusal> {
        let (message, _) = Message::parse(request)?;
        check(&message, (self.domain, self.sdo_id), self.identity)?;
        self.answer(&message, asked, receive)
    }

    /// Answers a request that [`check`] has nothing against.
    pub(super) fn answer(
        &self,
        request: &Message<'_>,
        asked: Asked,
        receive: PtpTimestamp,
    ) -> Result<DelayAnswer, Refusal> {
        let Body::DelayReq(_) = request.body else { return Err(Refusal::Unwanted) };
        if asked.group && !self.multicast {
            return Err(Refusal::Group);
        }
        if !asked.group && !self.hybrid && !asked.granted {
            return Err(Refusal::NotGranted);
        }
        let monitor = self.monitor.filter(|_| is_monitor(request) && !asked.group);
        if monitor.is_some() && !asked.admitted {
            return Err(Refusal::NotAdmitted);
        }
        let header = self.header(&request.header, asked.group);
        let body = Body::DelayResp { receive, requesting: request.header.source };
        let mut suffix = [0; MESSAGE_LEN_MAX];
        let suffix_len = monitor.map_or(0, |response| response.emit(&mut suffix));
        let message = Message { header, body, suffix: &suffix[..suffix_len] };
        let mut buffer = [0; MESSAGE_LEN_MAX];
        let length = message.emit(&mut buffer);
        Ok(DelayAnswer { buffer, length, owes_sync: monitor.is_some() })
    }

    /// The header of an answer: the number and the correction are those of the request (clause
    /// 13.8 and table 43).
    fn header(&self, request: &Header, group: bool) -> Header {
        Header {
            sdo_id: self.sdo_id,
            minor_version: MINOR_VERSION,
            domain: self.domain,
            flags: if group { Flags(0) } else { Flags::UNICAST },
            correction: request.correction,
            source: self.identity,
            sequence_id: request.sequence_id,
            log_interval: if group { self.log_min_delay_req } else { NO_INTERVAL },
        }
    }
}

/// Whether a `Delay_Req` asks for NetSync Monitor.
fn is_monitor(request: &Message<'_>) -> bool {
    request.tlvs().flatten().any(|tlv| tlv.number == REQUEST)
}
