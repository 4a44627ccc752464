//! How a request is written and its reply read, in this project's own format or in that of STAMP.
//! Pure.

use horolog_time::{Span, Timestamp, Utc};
use horolog_wire::path_probe::{Counted, FLAG_WARM_UP, Header, Kind};
use horolog_wire::stamp::{ErrorEstimate, ReflectorPacket, SenderPacket, WireTime};

/// The protocol of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// This project's, in a session.
    Horolog {
        /// The session that the far end gave.
        session: u64,
    },
    /// STAMP.
    Stamp {
        /// The session's identifier, chosen by this end.
        session: u16,
        /// How far this host's clock may be off.
        error_estimate: ErrorEstimate,
    },
}

/// What a reply tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The number of the request.
    pub sequence: u32,
    /// Whether it is of the warm-up, where that is told.
    pub is_warm_up: bool,
    /// When the request came, by the far end's clock.
    pub received_ns: i64,
    /// When the reply left, by the far end's clock.
    pub sent_ns: i64,
    /// What the far end counted until then, where it counts.
    pub counted: Option<Counted>,
    /// The traffic class with which the request came, where that is told.
    pub traffic_class: Option<u8>,
    /// How far the far end's clock may be off, where each reply tells it and it is synchronised.
    pub error: Option<Span>,
}

impl Codec {
    /// Writes a request to the front of a datagram; `now` is for the protocol that tells it.
    pub fn write(&self, buffer: &mut [u8], sequence: u32, warm_up: bool, now: Timestamp<Utc>) {
        match *self {
            Self::Horolog { session } => {
                let flags = if warm_up { FLAG_WARM_UP } else { 0 };
                let probe = Header { flags, ..Header::new(Kind::Probe, session, sequence) };
                probe.emit(buffer);
            }
            Self::Stamp { session, error_estimate } => {
                let timestamp = WireTime::ntp(now);
                SenderPacket { sequence, timestamp, error_estimate, session }.emit(buffer);
            }
        }
    }

    /// Whether requests tell when they are sent.
    #[must_use]
    pub const fn tells_time(&self) -> bool {
        matches!(self, Self::Stamp { .. })
    }

    /// Reads a reply; `None` where it is none of this flow's. `near` is a time that its timestamps
    /// are near to.
    #[must_use]
    pub fn read(&self, bytes: &[u8], near: Timestamp<Utc>) -> Option<Reply> {
        match *self {
            Self::Horolog { session } => {
                let (header, _) = Header::parse(bytes).ok()?;
                let is_ours = header.kind == Kind::Echo && header.session == session;
                is_ours.then_some(Reply {
                    sequence: header.sequence,
                    is_warm_up: header.flags & FLAG_WARM_UP != 0,
                    received_ns: header.received_ns,
                    sent_ns: header.sent_ns,
                    counted: Some(header.counted),
                    traffic_class: Some(header.traffic_class),
                    error: None,
                })
            }
            Self::Stamp { session, error_estimate } => {
                let (packet, _) = ReflectorPacket::parse(bytes).ok()?;
                // A reflector that does not know of sessions may leave them out; one that sends a
                // request back as it came is no reflector.
                let is_ours = packet.session == session || packet.session == 0;
                if !is_ours || packet.sender.error_estimate != error_estimate {
                    return None;
                }
                let estimate = packet.error_estimate;
                let error = estimate.error().filter(|_| estimate.synchronised());
                Some(Reply {
                    sequence: packet.sender.sequence,
                    is_warm_up: false,
                    received_ns: packet.received.to_utc(estimate, near)?.as_ns(),
                    sent_ns: packet.timestamp.to_utc(estimate, near)?.as_ns(),
                    counted: None,
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
    use crate::path::serve::stamp::{Circumstances, reflect};

    const NOW: Timestamp<Utc> = Timestamp::from_ns(1_700_000_000_000_000_000);

    #[test]
    fn an_echo_is_read_and_another_sessions_is_not() {
        let codec = Codec::Horolog { session: 77 };
        let mut bytes = [0; 64];
        codec.write(&mut bytes, 5, true, NOW);
        let (probe, _) = Header::parse(&bytes).unwrap();
        assert_eq!((probe.kind, probe.flags, probe.sequence), (Kind::Probe, FLAG_WARM_UP, 5));
        assert_eq!(codec.read(&bytes, NOW), None, "a request is no reply");
        let echo = Header { kind: Kind::Echo, received_ns: 1, sent_ns: 2, ..probe };
        echo.emit(&mut bytes);
        let reply = codec.read(&bytes, NOW).unwrap();
        assert_eq!((reply.sequence, reply.received_ns, reply.sent_ns), (5, 1, 2));
        assert_eq!(Codec::Horolog { session: 78 }.read(&bytes, NOW), None);
        assert_eq!(codec.read(&bytes[..47], NOW), None);
    }

    #[test]
    fn a_reflection_is_read_and_an_echo_of_the_request_is_not() {
        let error_estimate = ErrorEstimate::new(Span::from_ns(500), true);
        let codec = Codec::Stamp { session: 9, error_estimate };
        let mut bytes = [0; 100];
        codec.write(&mut bytes, 5, false, NOW);
        assert_eq!(codec.read(&bytes, NOW), None, "what is sent back untouched is no reflection");
        let received = NOW + Span::from_ns(1_000);
        let now = NOW + Span::from_ns(3_000);
        let far_estimate = ErrorEstimate::new(Span::from_ns(9_000), true);
        let at = Circumstances { received, now, error_estimate: far_estimate, hop_limit: 255 };
        assert!(reflect(&mut bytes, &at));
        let reply = codec.read(&bytes, NOW).unwrap();
        assert_eq!((reply.sequence, reply.counted), (5, None));
        assert!((reply.received_ns - received.as_ns()).abs() <= 1);
        assert!((reply.sent_ns - now.as_ns()).abs() <= 1);
        assert!(reply.error.unwrap().as_ns() >= 9_000);
    }
}
