//! Composition of this clock's messages in a buffer of their size.

use horolog_time::{NS_PER_S, Span};
use horolog_wire::ptp::message::{DELAY_RESP_LEN, SIGNALING_LEN};
use horolog_wire::ptp::monitor::MonitorResponse;
use horolog_wire::ptp::tlv::UNICAST_LEN_MAX;
use horolog_wire::ptp::{Header, Message, NO_INTERVAL, PortIdentity, PtpFlags};

use super::{ClockSettings, MINOR_VERSION, Outbox, PtpDestination, PtpPortCounts, PtpRefusal};

/// Maximum length of an address in a message, in bytes.
pub(super) const ADDRESS_LEN_MAX: usize = 16;
/// Maximum number of negotiations in a message from this clock: one for each kind of message that
/// can be granted, and as many denials.
pub(super) const NEGOTIATIONS_MAX: usize = 8;
/// Maximum length of a message that is not a management response, in bytes.
pub(super) const MESSAGE_LEN_MAX: usize = larger(
    DELAY_RESP_LEN + MonitorResponse::tlv_len(ADDRESS_LEN_MAX),
    SIGNALING_LEN + SUFFIX_LEN_MAX,
);
/// Maximum length of the negotiations in a message, in bytes.
pub(super) const SUFFIX_LEN_MAX: usize = NEGOTIATIONS_MAX * UNICAST_LEN_MAX;

const fn larger(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Returns the header of a message from `source`.
pub(super) fn header(
    clock: &ClockSettings,
    source: PortIdentity,
    flags: PtpFlags,
    sequence_id: u16,
) -> Header {
    Header {
        sdo_id: clock.sdo_id,
        minor_version: MINOR_VERSION,
        domain: clock.domain,
        flags,
        source,
        sequence_id,
        log_interval: NO_INTERVAL,
        ..Header::default()
    }
}

/// Returns the unicast flag of a message to this destination.
pub(super) const fn unicast_flag(to: PtpDestination) -> PtpFlags {
    match to {
        PtpDestination::Group | PtpDestination::PeerGroup => PtpFlags(0),
        PtpDestination::To(_) | PtpDestination::Manager(..) => PtpFlags::UNICAST,
    }
}

/// Checks the conditions for all received messages: of this domain, from another clock, with TLVs
/// that end where the message does (clauses 7.1 and 13.4).
pub(super) fn check(
    message: &Message<'_>,
    (domain, sdo_id): (u8, u16),
    own: PortIdentity,
) -> Result<(), PtpRefusal> {
    if (message.header.domain, message.header.sdo_id) != (domain, sdo_id) {
        Err(PtpRefusal::Domain)
    } else if message.header.source.clock == own.clock {
        Err(PtpRefusal::Own)
    } else if message.tlvs().any(|tlv| tlv.is_err()) {
        Err(PtpRefusal::Length)
    } else {
        Ok(())
    }
}

/// Writes a message, counts it and sends it.
pub(super) fn send(
    out: &mut impl Outbox,
    counts: &mut PtpPortCounts,
    to: PtpDestination,
    message: &Message<'_>,
    stamp: bool,
) {
    let mut buffer = [0; MESSAGE_LEN_MAX];
    let length = message.emit(&mut buffer);
    let event = message.kind().is_some_and(horolog_wire::ptp::MessageType::is_event);
    counts.count_sent(message.body.kind());
    out.send(to, event, stamp, &buffer[..length]);
}

/// Returns the interval for its logarithm in a message, clamped to between a nanosecond and a
/// month.
pub(super) const fn interval(log: i8) -> Span {
    let ns = match log {
        0.. => NS_PER_S << if log > 21 { 21 } else { log },
        _ => NS_PER_S >> if log < -29 { 29 } else { -log },
    };
    Span::from_ns(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_powers_of_two_seconds() {
        for (log, ns) in [(0, NS_PER_S), (1, 2 * NS_PER_S), (-1, NS_PER_S / 2), (-7, 7_812_500)] {
            assert_eq!(interval(log).as_ns(), ns, "{log}");
        }
        assert!(interval(i8::MIN).as_ns() > 0 && interval(i8::MAX) > interval(20));
    }
}
