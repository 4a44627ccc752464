//! What the tests of a port share: a clock, clients, and an outbox that keeps what is sent.

mod grants;
mod management;
mod messages;
mod model;
mod state;

use std::net::{IpAddr, Ipv4Addr};

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::{
    Announce, Header, Message, MessageType, NO_INTERVAL, PortIdentity, PtpFlags, PtpMessageBody,
    PtpTimestamp,
};

use super::*;

pub(super) const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000_000);
pub(super) const RECEIVED: PtpTimestamp = PtpTimestamp::new(1_700_000_037, 123_456_789);
pub(super) const SENT: PtpTimestamp = PtpTimestamp::new(1_700_000_038, 5);
pub(super) const OWN: u64 = 0x0200_5eff_fe10_0001;
pub(super) const CLIENT: PortIdentity = PortIdentity { clock: 0x0200_5eff_fe10_0099, port: 1 };
pub(super) const CLIENT_ADDRESS: PtpAddress = client(9);
/// No port of PTP, as a manager may have it.
pub(super) const CLIENT_PORT: u16 = 40_000;

/// The address of a client, which speaks to our first.
pub(super) const fn client(number: u8) -> PtpAddress {
    PtpAddress::Ip {
        peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)),
        local: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    }
}

/// A clock with a receiver for a source.
pub(super) const GOOD: PtpClockProperties = PtpClockProperties {
    usable: true,
    clock_class: 6,
    accuracy: 0x21,
    variance: 0x4e5d,
    time_source: 0x20,
    flags: PtpFlags(0x3c),
    utc_offset: 37,
};
pub(super) const UNUSABLE: PtpClockProperties = PtpClockProperties { usable: false, ..GOOD };

/// A message as it was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) to: PtpDestination,
    pub(super) event: bool,
    pub(super) stamp: bool,
    pub(super) bytes: Vec<u8>,
}

impl Sent {
    pub(super) fn message(&self) -> Message<'_> {
        let (message, trailer) = Message::parse(&self.bytes).unwrap();
        assert!(trailer.is_empty());
        message
    }

    pub(super) fn kind(&self) -> MessageType {
        self.message().kind().unwrap()
    }
}

/// Keeps what is sent.
#[derive(Default)]
pub(super) struct RecordingOutbox(pub(super) Vec<Sent>);

impl Outbox for RecordingOutbox {
    fn send(&mut self, to: PtpDestination, event: bool, stamp: bool, message: &[u8]) {
        self.0.push(Sent { to, event, stamp, bytes: message.to_vec() });
    }

    fn now_ptp(&mut self) -> PtpTimestamp {
        SENT
    }
}

impl RecordingOutbox {
    pub(super) fn take(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn kinds(&self) -> Vec<MessageType> {
        self.0.iter().map(Sent::kind).collect()
    }
}

pub(super) fn settings(profile: PtpProfile) -> PortSettings {
    let mac = MacAddress([2, 0, 0x5e, 0x10, 0, 1]);
    let address = vec![192, 0, 2, 1];
    PortSettings { address, ..profile.port(1, PtpPortTransport::Udp4, mac) }
}

/// A port that has just started.
pub(super) fn port(profile: PtpProfile) -> ClockPort {
    ClockPort::new(ClockSettings::new(OWN, profile), settings(profile), START)
}

/// A port that has listened and is the master, and the instant.
pub(super) fn master_of(settings: PortSettings) -> (ClockPort, Timestamp<Monotonic>) {
    let clock = ClockSettings::new(OWN, PtpProfile::DefaultE2e);
    let mut port = ClockPort::new(clock, settings, START);
    let now = START + seconds(6);
    port.process_due(&GOOD, now, &mut RecordingOutbox::default());
    assert_eq!(port.state(), PortState::Master);
    (port, now)
}

pub(super) fn master() -> (ClockPort, Timestamp<Monotonic>) {
    master_of(settings(PtpProfile::DefaultE2e))
}

pub(super) const fn seconds(count: i64) -> Span {
    Span::from_ms(1000 * count)
}

/// The header of a client's message.
pub(super) fn header() -> Header {
    Header {
        minor_version: 1,
        source: CLIENT,
        sequence_id: 0xabcd,
        log_interval: NO_INTERVAL,
        ..Header::default()
    }
}

pub(super) fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(&mut bytes);
    bytes
}

/// An arrival from the client to the port itself, over the right port, on the link.
pub(super) fn arrival(bytes: &[u8]) -> ReceivedPtpMessage<'_> {
    ReceivedPtpMessage {
        bytes,
        from: CLIENT_ADDRESS,
        from_port: CLIENT_PORT,
        group: false,
        event: bytes.first().is_some_and(|first| first & 0xf < 8),
        received: RECEIVED,
        on_link: true,
        admitted: true,
    }
}

/// What a message to the port itself is answered with.
pub(super) fn replies_to(
    port: &mut ClockPort,
    message: &Message<'_>,
    now: Timestamp<Monotonic>,
) -> Vec<Sent> {
    let mut out = RecordingOutbox::default();
    port.receive(&arrival(&bytes(message)), &GOOD, now, &mut out);
    out.take()
}

/// What a message to the group is answered with.
pub(super) fn replies_to_group(
    port: &mut ClockPort,
    message: &Message<'_>,
    now: Timestamp<Monotonic>,
) -> Vec<Sent> {
    let mut out = RecordingOutbox::default();
    let bytes = bytes(message);
    port.receive(&ReceivedPtpMessage { group: true, ..arrival(&bytes) }, &GOOD, now, &mut out);
    out.take()
}

pub(super) fn delay_req() -> Message<'static> {
    Message::new(header(), PtpMessageBody::DelayReq(PtpTimestamp::ZERO))
}

/// An Announce of another clock with this first rank.
pub(super) fn announce(sender: PortIdentity, priority1: u8, sequence_id: u16) -> Message<'static> {
    let settings =
        ClockSettings { priority1, ..ClockSettings::new(sender.clock, PtpProfile::DefaultE2e) };
    let announce = GOOD.announce(&settings, PtpTimestamp::ZERO);
    let header = Header { source: sender, sequence_id, log_interval: 1, ..header() };
    Message::new(header, PtpMessageBody::Announce(Announce { ..announce }))
}
