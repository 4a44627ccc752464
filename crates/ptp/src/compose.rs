//! Composition of outgoing messages, and checks common to all received ones.

use horolog_time::{NS_PER_S, Span};
use horolog_wire::ptp::message::{DELAY_RESP_LEN, SIGNALING_LEN};
use horolog_wire::ptp::monitor::NetSyncMonitorResponse;
use horolog_wire::ptp::tlv::UNICAST_LEN_MAX;
use horolog_wire::ptp::{Header, Message, NO_INTERVAL, PortIdentity, PtpFlags};

use crate::address::PtpDestination;
use crate::port::{Outbox, PtpPortCounts};
use crate::refusal::PtpRefusal;
use crate::settings::ClockSettings;

/// Minor PTP version of sent messages: that of IEEE 1588-2019.
pub const MINOR_VERSION: u8 = 1;
/// Maximum length of a protocol address in a message, in bytes.
pub(crate) const ADDRESS_LEN_MAX: usize = 16;
/// Maximum number of unicast negotiation TLVs in one outgoing message: one for each type of message
/// that can be granted, and as many denials.
pub(crate) const NEGOTIATIONS_MAX: usize = 8;
/// Maximum length of an outgoing message other than a management response, in bytes.
pub(crate) const MESSAGE_LEN_MAX: usize = longer_len(
    DELAY_RESP_LEN + NetSyncMonitorResponse::tlv_len(ADDRESS_LEN_MAX),
    SIGNALING_LEN + SUFFIX_LEN_MAX,
);
/// Maximum length of the unicast negotiation TLVs in one message, in bytes.
pub(crate) const SUFFIX_LEN_MAX: usize = NEGOTIATIONS_MAX * UNICAST_LEN_MAX;

const fn longer_len(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Returns the header of a message from `source`.
pub(crate) fn header(
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

/// Returns the unicast flag for a message to this destination.
pub(crate) const fn unicast_flag(to: PtpDestination) -> PtpFlags {
    match to {
        PtpDestination::Group | PtpDestination::PeerGroup => PtpFlags(0),
        PtpDestination::To(_) | PtpDestination::Manager(..) => PtpFlags::UNICAST,
    }
}

/// Checks what applies to all received messages: they are of this domain, from another clock, and
/// their TLVs end where the message does (clauses 7.1 and 13.4).
pub(crate) fn check_message(
    message: &Message<'_>,
    (domain, sdo_id): (u8, u16),
    port: PortIdentity,
) -> Result<(), PtpRefusal> {
    if (message.header.domain, message.header.sdo_id) != (domain, sdo_id) {
        Err(PtpRefusal::Domain)
    } else if message.header.source.clock == port.clock {
        Err(PtpRefusal::Own)
    } else if message.tlvs().any(|tlv| tlv.is_err()) {
        Err(PtpRefusal::Length)
    } else {
        Ok(())
    }
}

/// Composes, counts and sends a message.
pub(crate) fn send_message(
    out: &mut impl Outbox,
    counts: &mut PtpPortCounts,
    to: PtpDestination,
    message: &Message<'_>,
    needs_timestamp: bool,
) {
    let mut buffer = [0; MESSAGE_LEN_MAX];
    let length = message.emit(&mut buffer);
    let event = message.kind().is_some_and(horolog_wire::ptp::MessageType::is_event);
    counts.count_sent(message.body.type_bits());
    out.send(to, event, needs_timestamp, &buffer[..length]);
}

/// Returns the interval of a log2 of seconds in a message, clamped to between a nanosecond and a
/// month.
pub(crate) const fn interval_from_log(log: i8) -> Span {
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
            assert_eq!(interval_from_log(log).as_ns(), ns, "{log}");
        }
        assert!(
            interval_from_log(i8::MIN).as_ns() > 0
                && interval_from_log(i8::MAX) > interval_from_log(20)
        );
    }
}
