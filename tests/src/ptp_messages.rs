//! Requests to a PTP master, and the messages of a correct one, which faulty masters change.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_wire::ptp::monitor::{self, CurrentDataSet, NetSyncMonitorResponse, ParentDataSet};
use horolog_wire::ptp::tlv::{UNICAST_LEN_MAX, UnicastNegotiationTlv};
use horolog_wire::ptp::{
    Header, Message, MessageType, PortIdentity, PtpFlags, PtpMessageBody, PtpTimestamp,
};

/// Port identity of the master.
const MASTER: PortIdentity = PortIdentity { clock: 0x0200_00ff_fe00_0001, port: 1 };
/// Timestamps of received requests and sent Sync messages, of which only the order matters.
pub(crate) const RECEIVE_TIMESTAMP: PtpTimestamp = PtpTimestamp::new(1_700_000_000, 5_000);
const TRANSMIT_TIMESTAMP: PtpTimestamp = PtpTimestamp::new(1_700_000_000, 9_000);

/// Socket from which a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceSocket {
    Event,
    General,
    OtherPort,
    OtherAddress,
}

/// Message to send.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) payload: Vec<u8>,
    pub(crate) from: SourceSocket,
    pub(crate) to: SocketAddr,
    pub(crate) delay: Duration,
}

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    Delay,
    Monitor,
    Messages { kind: MessageType, log_interval: i8, duration_s: u32 },
}

/// PTP request of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PtpRequest {
    pub(crate) from: IpAddr,
    pub(crate) port: PortIdentity,
    pub(crate) kind: RequestKind,
    /// Header of every message in response.
    header: Header,
}

impl PtpRequest {
    /// Parses a request; returns `None` for any other message.
    pub(crate) fn parse(request: &[u8], from: SocketAddr) -> Option<Self> {
        let (message, _) = Message::parse(request).ok()?;
        let mut tlvs = message.tlvs().flatten();
        let wanted = match message.body {
            PtpMessageBody::DelayReq(_)
                if tlvs.any(|tlv| tlv.type_number == monitor::REQUEST_TLV_TYPE) =>
            {
                RequestKind::Monitor
            }
            PtpMessageBody::DelayReq(_) => RequestKind::Delay,
            PtpMessageBody::Signaling(_) => {
                match UnicastNegotiationTlv::from_tlv(&tlvs.next()?)?.ok()? {
                    UnicastNegotiationTlv::Request { kind, log_interval, duration_s } => {
                        RequestKind::Messages { kind, log_interval, duration_s }
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
        let header = Header { source: MASTER, ..message.header };
        Some(Self { from: from.ip(), port: message.header.source, kind: wanted, header })
    }

    /// Returns a message to the requesting client, from the port for its type.
    pub(crate) fn datagram(&self, message: &Message<'_>) -> Datagram {
        let mut payload = vec![0; message.len()];
        message.emit(&mut payload);
        let from = match message.kind() {
            Some(kind) if kind.is_event() => SourceSocket::Event,
            _ => SourceSocket::General,
        };
        let to = SocketAddr::new(self.from, if from == SourceSocket::Event { 319 } else { 320 });
        Datagram { payload, from, to, delay: Duration::ZERO }
    }

    /// Returns a delay response to a requesting port.
    pub(crate) fn delay(&self, requesting: PortIdentity, suffix: &[u8]) -> Datagram {
        let body = PtpMessageBody::DelayResp { receive: RECEIVE_TIMESTAMP, requesting };
        self.datagram(&Message { header: self.header, body, suffix })
    }

    /// Returns a Signaling message with these TLVs to a target port.
    pub(crate) fn signaling(&self, target: PortIdentity, suffix: &[u8]) -> Datagram {
        let body = PtpMessageBody::Signaling(target);
        // A master numbers Signaling messages independently of requests.
        let sequence_id = self.header.sequence_id.wrapping_add(4_711);
        self.datagram(&Message { header: Header { sequence_id, ..self.header }, body, suffix })
    }

    /// Returns a Signaling message with one TLV to the requesting client.
    pub(crate) fn negotiation(&self, unicast: UnicastNegotiationTlv) -> Datagram {
        let mut tlv = [0; UNICAST_LEN_MAX];
        let length = unicast.emit(&mut tlv);
        self.signaling(self.port, &tlv[..length])
    }

    /// Returns a grant of messages for this duration, at the requested interval.
    pub(crate) fn grant(&self, kind: MessageType, duration_s: u32) -> UnicastNegotiationTlv {
        let log_interval = match self.kind {
            RequestKind::Messages { log_interval, .. } => log_interval,
            RequestKind::Delay | RequestKind::Monitor => 0,
        };
        UnicastNegotiationTlv::Grant { kind, log_interval, duration_s, renewal_invited: false }
    }

    /// Returns the correct response to the request.
    pub(crate) fn correct_response(&self) -> Vec<Datagram> {
        match self.kind {
            RequestKind::Delay => vec![self.delay(self.port, &[])],
            RequestKind::Monitor => {
                let two_step = self.header.flags.union(PtpFlags::TWO_STEP);
                let sync = PtpMessageBody::Sync(PtpTimestamp::ZERO);
                let [sync, follow_up] = [
                    (two_step, sync),
                    (self.header.flags, PtpMessageBody::FollowUp(TRANSMIT_TIMESTAMP)),
                ]
                .map(|(flags, body)| {
                    self.datagram(&Message::new(Header { flags, ..self.header }, body))
                });
                vec![
                    self.delay(self.port, &monitor_suffix(PtpFlags::TIME_TRACEABLE)),
                    sync,
                    follow_up,
                ]
            }
            RequestKind::Messages { kind, duration_s, .. } => {
                vec![self.negotiation(self.grant(kind, duration_s))]
            }
        }
    }
}

/// Returns the NetSync Monitor TLV of the master, with these flags of its time.
pub(crate) fn monitor_suffix(flags: PtpFlags) -> Vec<u8> {
    let response = NetSyncMonitorResponse {
        port_state: 6,
        protocol: 1,
        address: &[192, 0, 2, 1],
        parent: ParentDataSet::default(),
        current: CurrentDataSet::default(),
        utc_offset: 37,
        time_flags: flags.0 as u8,
        time_source: 0x20,
        last_sync: PtpTimestamp::ZERO,
    };
    let mut tlv = vec![0; NetSyncMonitorResponse::tlv_len(4)];
    response.emit(&mut tlv);
    tlv
}
