//! Messages of a correct master, and the positions of the fields in them that faulty ones get
//! wrong.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use horolog_wire::ptp::monitor::{self, CurrentDataSet, NetSyncMonitorResponse, ParentDataSet};
use horolog_wire::ptp::tlv::{UNICAST_LEN_MAX, UnicastNegotiationTlv};
use horolog_wire::ptp::{
    Header, Message, MessageType, PortIdentity, PtpFlags, PtpMessageBody, PtpTimestamp,
};

/// The port of the master that answers.
const MASTER: PortIdentity = PortIdentity { clock: 0x0200_00ff_fe00_0001, port: 1 };
/// When requests come and Syncs leave; these say nothing but that one is later.
pub(crate) const RECEIVE: PtpTimestamp = PtpTimestamp::new(1_700_000_000, 5_000);
const TRANSMIT: PtpTimestamp = PtpTimestamp::new(1_700_000_000, 9_000);

/// Where an answer comes from: the number of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    Event,
    General,
    OtherPort,
    OtherAddress,
}

/// A message to send.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) payload: Vec<u8>,
    pub(crate) from: From,
    pub(crate) to: SocketAddr,
    pub(crate) after: Duration,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    Delay,
    Monitor,
    Messages { kind: MessageType, log_interval: i8, duration_s: u32 },
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PtpRequest {
    pub(crate) from: IpAddr,
    pub(crate) port: PortIdentity,
    pub(crate) wanted: RequestKind,
    /// What stands in front of every answer.
    header: Header,
}

impl PtpRequest {
    /// Reads a request; `None` where it is none.
    pub(crate) fn read(request: &[u8], from: SocketAddr) -> Option<Self> {
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
        Some(Self { from: from.ip(), port: message.header.source, wanted, header })
    }

    /// A message to the client that asks, from the port that such a message comes from.
    pub(crate) fn datagram(&self, message: &Message<'_>) -> Datagram {
        let mut payload = vec![0; message.len()];
        message.emit(&mut payload);
        let from = match message.kind() {
            Some(kind) if kind.is_event() => From::Event,
            _ => From::General,
        };
        let to = SocketAddr::new(self.from, if from == From::Event { 319 } else { 320 });
        Datagram { payload, from, to, after: Duration::ZERO }
    }

    /// A delay response to whoever is said to have asked.
    pub(crate) fn delay(&self, requesting: PortIdentity, suffix: &[u8]) -> Datagram {
        let body = PtpMessageBody::DelayResp { receive: RECEIVE, requesting };
        self.datagram(&Message { header: self.header, body, suffix })
    }

    /// A negotiation with whomever, of these TLVs.
    pub(crate) fn signaling(&self, target: PortIdentity, suffix: &[u8]) -> Datagram {
        let body = PtpMessageBody::Signaling(target);
        // A master numbers these by itself.
        let sequence_id = self.header.sequence_id.wrapping_add(4_711);
        self.datagram(&Message { header: Header { sequence_id, ..self.header }, body, suffix })
    }

    /// The same of one TLV, to the client that asks.
    pub(crate) fn negotiation(&self, unicast: UnicastNegotiationTlv) -> Datagram {
        let mut tlv = [0; UNICAST_LEN_MAX];
        let length = unicast.emit(&mut tlv);
        self.signaling(self.port, &tlv[..length])
    }

    /// The grant of what is asked for, if it is messages, for so many seconds.
    pub(crate) fn grant(&self, kind: MessageType, duration_s: u32) -> UnicastNegotiationTlv {
        let log_interval = match self.wanted {
            RequestKind::Messages { log_interval, .. } => log_interval,
            RequestKind::Delay | RequestKind::Monitor => 0,
        };
        UnicastNegotiationTlv::Grant { kind, log_interval, duration_s, renewal_invited: false }
    }

    /// All that this request is owed.
    pub(crate) fn right(&self) -> Vec<Datagram> {
        match self.wanted {
            RequestKind::Delay => vec![self.delay(self.port, &[])],
            RequestKind::Monitor => {
                let two_step = self.header.flags.union(PtpFlags::TWO_STEP);
                let sync = PtpMessageBody::Sync(PtpTimestamp::ZERO);
                let [sync, follow_up] =
                    [(two_step, sync), (self.header.flags, PtpMessageBody::FollowUp(TRANSMIT))]
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

/// What NetSync Monitor says of the master, with these flags of its time.
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
