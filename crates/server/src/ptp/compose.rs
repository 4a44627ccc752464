//! Our own messages, written into a buffer of their size.

use horolog_time::{NS_PER_S, Span};
use horolog_wire::ptp::message::{DELAY_RESP_LEN, SIGNALING_LEN};
use horolog_wire::ptp::monitor::Response;
use horolog_wire::ptp::tlv::UNICAST_LEN_MAX;
use horolog_wire::ptp::{Flags, Header, Message, NO_INTERVAL, PortIdentity};

use super::{ClockSettings, Counts, Destination, MINOR_VERSION, Outbox, Refusal};

/// The most bytes of an address in a message.
pub(super) const ADDRESS_LEN_MAX: usize = 16;
/// How many negotiations there are at most in a message of ours: one for each kind of messages that
/// can be granted, and as many denials.
pub(super) const NEGOTIATIONS_MAX: usize = 8;
/// The most bytes of a message that is no answer of management.
pub(super) const MESSAGE_LEN_MAX: usize =
    larger(DELAY_RESP_LEN + Response::tlv_len(ADDRESS_LEN_MAX), SIGNALING_LEN + SUFFIX_LEN_MAX);
/// The most bytes of the negotiations in a message.
pub(super) const SUFFIX_LEN_MAX: usize = NEGOTIATIONS_MAX * UNICAST_LEN_MAX;

const fn larger(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// The header of a message from `source`.
pub(super) fn header(
    clock: &ClockSettings,
    source: PortIdentity,
    flags: Flags,
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

/// The flag that a message to this destination has.
pub(super) const fn unicast_flag(to: Destination) -> Flags {
    match to {
        Destination::Group | Destination::PeerGroup => Flags(0),
        Destination::To(_) => Flags::UNICAST,
    }
}

/// What all that is received has to be: of the domain, of others, with TLVs that end where it does
/// (clauses 7.1 and 13.4).
pub(super) fn check(
    message: &Message<'_>,
    (domain, sdo_id): (u8, u16),
    own: PortIdentity,
) -> Result<(), Refusal> {
    if (message.header.domain, message.header.sdo_id) != (domain, sdo_id) {
        Err(Refusal::Domain)
    } else if message.header.source.clock == own.clock {
        Err(Refusal::Own)
    } else if message.tlvs().any(|tlv| tlv.is_err()) {
        Err(Refusal::Length)
    } else {
        Ok(())
    }
}

/// Writes a message, counts it and sends it.
pub(super) fn send(
    out: &mut impl Outbox,
    counts: &mut Counts,
    to: Destination,
    message: &Message<'_>,
    stamp: bool,
) {
    let mut buffer = [0; MESSAGE_LEN_MAX];
    let length = message.emit(&mut buffer);
    let event = message.kind().is_some_and(horolog_wire::ptp::MessageType::is_event);
    counts.count_sent(message.body.kind());
    out.send(to, event, stamp, &buffer[..length]);
}

/// The interval that a message tells of by its logarithm. Those beyond a month or below a
/// nanosecond are taken as that.
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
