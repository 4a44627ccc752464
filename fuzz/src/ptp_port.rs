//! Port of a PTP grandmaster with arbitrary received messages and timer expiries. It never panics;
//! its state stays within its limits; it is not master while its clock is unusable; the messages it
//! sends are well-formed, have its own identity and are hardly longer than the requests; and it
//! does not reply to its own messages.
//!
//! An input is a byte of settings, and steps. A step has four bytes (kind, two numbers, and length
//! of the message) and the message.
#![no_main]

use std::net::Ipv4Addr;

use horolog_ptp::{
    ClockPort, ClockSettings, FOREIGN_MASTERS_MAX, Outbox, PortSettings, PortState, PtpAddress,
    PtpClockProperties, PtpDestination, PtpPortTransport, PtpProfile, ReceivedPtpMessage,
    UnicastGrantLimits,
};
use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::{Message, MessageType, PtpFlags, PtpTimestamp};
use libfuzzer_sys::fuzz_target;

const OWN: u64 = 0x0200_5eff_fe10_0001;
const GRANTS_MAX: usize = 6;
const RATE_MAX: u32 = 50;
const NOW: PtpTimestamp = PtpTimestamp::new(1_700_000_000, 5);
/// Difference in length between a `Delay_Resp` and its request, in bytes.
const DELAY_RESP_EXTRA: usize = 10;
/// Difference in length between eight grants and their requests, in bytes.
const GRANTS_EXTRA: usize = 16;

#[derive(Default)]
struct SentMessages(Vec<(PtpDestination, bool, Vec<u8>)>);

impl Outbox for SentMessages {
    fn send(&mut self, to: PtpDestination, event: bool, with_timestamp: bool, message: &[u8]) {
        let kind = MessageType::from_bits(message[0]).expect("a known type");
        assert_eq!(kind.is_event(), event);
        assert!(event || !with_timestamp, "only event messages are timestamped");
        self.0.push((to, with_timestamp, message.to_vec()));
    }

    fn now_ptp(&mut self) -> PtpTimestamp {
        NOW
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&selector, mut rest)) = bytes.split_first() else { return };
    let mut fixture = PortFixture::new(selector);
    while let Some((&[step, a, b, length], more)) = rest.split_first_chunk() {
        let (message, more) = more.split_at(more.len().min(length.into()));
        rest = more;
        match step & 3 {
            0 | 1 => fixture.receive(message, a, b),
            2 => fixture.wait(u16::from_be_bytes([a, b])),
            _ => fixture.change_clock(a, b),
        }
        fixture.check();
    }
});

struct PortFixture {
    port: ClockPort,
    settings: ClockSettings,
    one_step: bool,
    clock: PtpClockProperties,
    now: Timestamp<Monotonic>,
}

impl PortFixture {
    fn new(selector: u8) -> Self {
        let profile = PtpProfile::ALL[usize::from(selector & 3) % PtpProfile::ALL.len()];
        let transports =
            [PtpPortTransport::Udp4, PtpPortTransport::Udp6, PtpPortTransport::Ethernet];
        let transport = transports[usize::from(selector >> 2 & 3) % transports.len()];
        let settings = ClockSettings::new(OWN, profile);
        let one_step = selector & 0x10 != 0;
        let port = PortSettings {
            one_step,
            hybrid: selector & 0x20 != 0,
            monitor: selector & 0x40 != 0,
            unicast: UnicastGrantLimits {
                grants_max: GRANTS_MAX,
                rate_max: RATE_MAX,
                duration_max_s: 30,
                log_interval_min: -5,
            },
            address: vec![192, 0, 2, 1],
            ..profile.port(1, transport, MacAddress([2, 0, 0, 0, 0, 1]))
        };
        let clock = PtpClockProperties {
            usable: selector & 0x80 == 0,
            clock_class: 6,
            accuracy: 0x21,
            variance: 0x4e5d,
            time_source: 0x20,
            flags: PtpFlags(0x3c),
            utc_offset: 37,
        };
        let now = Timestamp::from_ns(1_000_000_000);
        Self { port: ClockPort::new(settings.clone(), port, now), settings, one_step, clock, now }
    }

    /// Receives a message whose length, domain and target are repaired, except where bits 0 and 1
    /// of `repairs` are 1: random bytes practically never contain valid ones. The other bits select
    /// properties of the packet.
    fn receive(&mut self, message: &[u8], repairs: u8, client: u8) {
        let mut bytes = message.to_vec();
        if repairs & 1 == 0 && bytes.len() >= 6 {
            bytes[0] &= 0xf;
            bytes[1] = bytes[1] & 0xf0 | 2;
            let length = (bytes.len() as u16).to_be_bytes();
            bytes[2..4].copy_from_slice(&length);
            bytes[4..6].copy_from_slice(&[self.settings.domain, 0]);
        }
        let kind = bytes.first().map_or(0xf, |first| first & 0xf);
        if repairs & 2 == 0 && kind >= 0xc && bytes.len() >= 44 {
            bytes[34..44].fill(0xff);
        }
        let arrival = ReceivedPtpMessage {
            bytes: &bytes,
            from: address(client),
            from_port: repairs.into(),
            group: repairs & 8 != 0,
            event: (kind < 8) != (repairs & 4 != 0),
            received: NOW,
            on_link: repairs & 0x10 != 0,
            admitted: repairs & 0x20 != 0,
        };
        let state_before = self.port.state();
        let mut out = SentMessages::default();
        self.port.receive(&arrival, &self.clock, self.now, &mut out);
        self.check_sent(&out);
        if kind == MessageType::Announce as u8 {
            // An Announce may make the port passive, which ends all grants.
            assert!(out.0.len() <= GRANTS_MAX);
            return;
        }
        assert_eq!(self.port.state(), state_before, "only an Announce may change the state");
        assert!(out.0.len() <= 2);
        if arrival.on_link || arrival.admitted {
            return;
        }
        assert!(out.0.len() <= 1);
        let extra = match MessageType::from_bits(kind) {
            Some(MessageType::DelayReq) => DELAY_RESP_EXTRA,
            Some(MessageType::Signaling) => GRANTS_EXTRA,
            _ => 0,
        };
        assert!(out.0.iter().all(|(_, _, sent)| sent.len() <= bytes.len() + extra));
    }

    fn wait(&mut self, ms: u16) {
        self.now = self.now + Span::from_ms(ms.into());
        self.due();
    }

    fn change_clock(&mut self, class: u8, bits: u8) {
        self.clock.clock_class = class;
        self.clock.usable = bits & 1 == 0;
        self.clock.flags = PtpFlags(bits.into());
        self.due();
    }

    fn due(&mut self) {
        let mut out = SentMessages::default();
        self.port.process_due(&self.clock, self.now, &mut out);
        self.check_sent(&out);
        assert!(out.0.len() <= 2 + GRANTS_MAX);
        assert!(self.port.next_due() > self.now, "all due events are processed");
        assert!(self.clock.usable || self.port.state() != PortState::Master);
        for (to, with_timestamp, message) in &out.0 {
            let mut follow_up = SentMessages::default();
            self.port.process_transmitted(message, *to, NOW, &mut follow_up);
            // A one-step port needs no transmit timestamp from the NIC: no message follows it.
            assert_eq!(follow_up.0.len(), usize::from(*with_timestamp && !self.one_step));
            self.check_sent(&follow_up);
        }
    }

    fn check(&self) {
        let view = self.port.view(&self.clock);
        assert!(view.foreign_masters.len() <= FOREIGN_MASTERS_MAX);
        assert!(view.grants <= GRANTS_MAX && view.granted_rate <= f64::from(RATE_MAX));
        let fast = self.port.delay_responder(&self.clock);
        assert!(fast.is_none() || self.clock.usable && view.state == PortState::Master);
    }

    /// Checks that sent messages are well-formed, hold no time of an unusable clock, and get no
    /// response from another port of the same clock.
    fn check_sent(&self, out: &SentMessages) {
        for (_, _, bytes) in &out.0 {
            let (message, trailer) = Message::parse(bytes).expect("a message");
            assert!(trailer.is_empty() && message.tlvs().all(|tlv| tlv.is_ok()));
            assert_eq!((message.header.source.clock, message.header.source.port), (OWN, 1));
            assert_eq!(message.header.domain, self.settings.domain);
            let untimed = [MessageType::Signaling, MessageType::Management];
            let kind = message.kind().expect("a known type");
            assert!(self.clock.usable || untimed.contains(&kind), "{kind:?} of an unusable clock");
            let arrival = ReceivedPtpMessage {
                bytes,
                from: address(1),
                from_port: 320,
                group: true,
                event: kind.is_event(),
                received: NOW,
                on_link: true,
                admitted: true,
            };
            let mut port = self.port.clone();
            let mut again = SentMessages::default();
            port.receive(&arrival, &self.clock, self.now, &mut again);
            assert!(again.0.is_empty(), "the port replies to its own message");
        }
    }
}

fn address(client: u8) -> PtpAddress {
    PtpAddress::Ip {
        peer: Ipv4Addr::new(192, 0, 2, client).into(),
        local: Ipv4Addr::new(192, 0, 2, 254).into(),
    }
}
