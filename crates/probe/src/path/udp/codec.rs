//! Encoding of requests and decoding of replies, in Horolog's protocol or STAMP. Pure.

use horolog_time::{Span, Timestamp, Utc};
use horolog_wire::path_probe::{
    FLAG_WARM_UP, HEADER_LEN, Header, PathDatagramKind, SessionCounts, short,
};
use horolog_wire::stamp::{ErrorEstimate, RawTimestamp, ReflectorPacket, SenderPacket};

/// Protocol of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeCodec {
    /// Horolog's protocol, in a session.
    Horolog {
        /// Session assigned by the far end.
        session: u64,
    },
    /// STAMP (RFC 8762).
    Stamp {
        /// Session identifier, chosen by this end.
        session: u16,
        /// Error estimate of this host's clock.
        error_estimate: ErrorEstimate,
    },
}

/// Decoded reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeReply {
    /// Sequence number of the request.
    pub sequence: u32,
    /// True for a warm-up reply, if the protocol distinguishes them.
    pub is_warm_up: bool,
    /// Receive time of the request in ns since 1970, on the far end's clock.
    pub received_ns: i64,
    /// Transmit time of the reply in ns since 1970, on the far end's clock.
    pub sent_ns: i64,
    /// Far end's counts; `None` if the protocol does not carry them in each reply.
    pub counts: Option<SessionCounts>,
    /// Number of counted requests received by the far end, possibly its low 8 bits only.
    pub arrivals: Option<u32>,
    /// Traffic class with which the request arrived, if reported.
    pub traffic_class: Option<u8>,
    /// Error bound of the far end's clock, if reported and the clock is synchronised.
    pub error: Option<Span>,
}

impl ProbeCodec {
    /// Writes a request to the front of a datagram; `now` is its transmit time if the protocol
    /// carries one.
    pub fn write_request(
        &self,
        buffer: &mut [u8],
        sequence: u32,
        warm_up: bool,
        now: Timestamp<Utc>,
    ) {
        match *self {
            Self::Horolog { session } if buffer.len() < HEADER_LEN => {
                short::ShortProbe { warm_up, sequence, session }.emit(buffer);
            }
            Self::Horolog { session } => {
                let flags = if warm_up { FLAG_WARM_UP } else { 0 };
                let probe =
                    Header { flags, ..Header::new(PathDatagramKind::Probe, session, sequence) };
                probe.emit(buffer);
            }
            Self::Stamp { session, error_estimate } => {
                let timestamp = RawTimestamp::from_utc(now);
                SenderPacket { sequence, timestamp, error_estimate, session }.emit(buffer);
            }
        }
    }

    /// Returns true if requests carry their transmit time (STAMP).
    #[must_use]
    pub const fn carries_time(&self) -> bool {
        matches!(self, Self::Stamp { .. })
    }

    /// Parses a reply; `None` if it is not of this flow. `near` is an approximate time, to extend
    /// truncated timestamps.
    #[must_use]
    pub fn parse_reply(&self, bytes: &[u8], near: Timestamp<Utc>) -> Option<ProbeReply> {
        match *self {
            Self::Horolog { session } if bytes.len() < HEADER_LEN => {
                let echo = short::ShortEcho::parse(bytes).ok()?;
                let received_ns = echo.received_ns(near.as_ns());
                (echo.session == session as u8).then_some(ProbeReply {
                    sequence: echo.sequence,
                    is_warm_up: echo.warm_up,
                    received_ns,
                    sent_ns: received_ns.saturating_add(echo.turnaround_ns),
                    counts: None,
                    arrivals: Some(echo.arrivals.into()),
                    traffic_class: Some(echo.traffic_class),
                    error: None,
                })
            }
            Self::Horolog { session } => {
                let (header, _) = Header::parse(bytes).ok()?;
                let is_ours = header.kind == PathDatagramKind::Echo && header.session == session;
                is_ours.then_some(ProbeReply {
                    sequence: header.sequence,
                    is_warm_up: header.flags & FLAG_WARM_UP != 0,
                    received_ns: header.received_ns,
                    sent_ns: header.sent_ns,
                    counts: Some(header.counts),
                    arrivals: Some(header.counts.arrivals),
                    traffic_class: Some(header.traffic_class),
                    error: None,
                })
            }
            Self::Stamp { session, error_estimate } => {
                let (packet, _) = ReflectorPacket::parse(bytes).ok()?;
                // A reflector without session support may return 0. A packet whose sender fields
                // differ from the request is no reply to it.
                let is_ours = packet.session == session || packet.session == 0;
                if !is_ours || packet.sender.error_estimate != error_estimate {
                    return None;
                }
                let estimate = packet.error_estimate;
                let error = estimate.error().filter(|_| estimate.is_synchronised());
                Some(ProbeReply {
                    sequence: packet.sender.sequence,
                    is_warm_up: false,
                    received_ns: packet.received.to_utc(estimate, near)?.as_ns(),
                    sent_ns: packet.timestamp.to_utc(estimate, near)?.as_ns(),
                    counts: None,
                    arrivals: None,
                    traffic_class: None,
                    error,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::serve::stamp::{ReflectedPacketContext, reflect};

    const NOW: Timestamp<Utc> = Timestamp::from_ns(1_700_000_000_000_000_000);

    #[test]
    fn an_echo_is_read_and_another_sessions_is_not() {
        let codec = ProbeCodec::Horolog { session: 77 };
        let mut bytes = [0; 64];
        codec.write_request(&mut bytes, 5, true, NOW);
        let (probe, _) = Header::parse(&bytes).unwrap();
        assert_eq!(
            (probe.kind, probe.flags, probe.sequence),
            (PathDatagramKind::Probe, FLAG_WARM_UP, 5)
        );
        assert_eq!(codec.parse_reply(&bytes, NOW), None, "a request is no reply");
        let echo = Header { kind: PathDatagramKind::Echo, received_ns: 1, sent_ns: 2, ..probe };
        echo.emit(&mut bytes);
        let reply = codec.parse_reply(&bytes, NOW).unwrap();
        assert_eq!((reply.sequence, reply.received_ns, reply.sent_ns), (5, 1, 2));
        assert_eq!(ProbeCodec::Horolog { session: 78 }.parse_reply(&bytes, NOW), None);
        assert_eq!(codec.parse_reply(&bytes[..47], NOW), None);
    }

    #[test]
    fn a_short_echo_is_read_in_its_session_and_near_its_time() {
        let codec = ProbeCodec::Horolog { session: 0x1_0000_0077 };
        let mut bytes = [0; 20];
        codec.write_request(&mut bytes, 5, true, NOW);
        let probe = short::ShortProbe { warm_up: true, sequence: 5, session: 0x1_0000_0077 };
        assert_eq!(short::ShortProbe::parse(&bytes), Ok(probe));
        assert_eq!(codec.parse_reply(&bytes, NOW), None, "a request is no reply");
        let received = NOW - Span::from_ms(700);
        short::ShortEcho {
            warm_up: true,
            traffic_class: 7,
            arrivals: 9,
            sequence: 5,
            session: 0x77,
            received: received.as_ns() as u32,
            turnaround_ns: 800,
        }
        .emit(&mut bytes);
        let reply = codec.parse_reply(&bytes, NOW).unwrap();
        assert_eq!((reply.sequence, reply.is_warm_up, reply.arrivals), (5, true, Some(9)));
        assert_eq!(reply.received_ns, received.as_ns());
        assert_eq!(reply.sent_ns, received.as_ns() + 800);
        assert_eq!(ProbeCodec::Horolog { session: 0x78 }.parse_reply(&bytes, NOW), None);
        assert_eq!(codec.parse_reply(&bytes[..15], NOW), None);
    }

    #[test]
    fn a_reflection_is_read_and_an_echo_of_the_request_is_not() {
        let error_estimate = ErrorEstimate::new(Span::from_ns(500), true);
        let codec = ProbeCodec::Stamp { session: 9, error_estimate };
        let mut bytes = [0; 100];
        codec.write_request(&mut bytes, 5, false, NOW);
        assert_eq!(
            codec.parse_reply(&bytes, NOW),
            None,
            "what is sent back untouched is no reflection"
        );
        let received = NOW + Span::from_ns(1_000);
        let now = NOW + Span::from_ns(3_000);
        let far_estimate = ErrorEstimate::new(Span::from_ns(9_000), true);
        let at =
            ReflectedPacketContext { received, now, error_estimate: far_estimate, hop_limit: 255 };
        assert!(reflect(&mut bytes, &at));
        let reply = codec.parse_reply(&bytes, NOW).unwrap();
        assert_eq!((reply.sequence, reply.counts), (5, None));
        assert!((reply.received_ns - received.as_ns()).abs() <= 1);
        assert!((reply.sent_ns - now.as_ns()).abs() <= 1);
        assert!(reply.error.unwrap().as_ns() >= 9_000);
    }
}
