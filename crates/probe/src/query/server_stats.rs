//! Stats of one polled server, and its reaction to a Kiss-o'-Death. Pure.

use horolog_record::{
    EarlyQueryEnd, ExchangeSample, LeapState, QueriedServerState, QueryCounts, QueryEndReason,
    TimestampCounts,
};
use horolog_wire::ntp::{Header, LeapIndicator, ReplyStatus};

use super::client::NtpExchange;
use super::exchange::{ExchangeTimestampPrecisions, offset_and_delay};
use super::packet_timestamp;

/// Number of RATE kisses that each double the interval; the next one ends the polls.
const RATE_KISSES_MAX: u32 = 4;

/// Stats of one server.
#[derive(Debug, Default)]
pub(crate) struct PolledServerStats {
    pub(crate) counts: QueryCounts,
    pub(crate) transmit_timestamps: TimestampCounts,
    pub(crate) receive_timestamps: TimestampCounts,
    pub(crate) server_state: Option<QueriedServerState>,
    pub(crate) samples: Vec<ExchangeSample>,
    pub(crate) end_reason: Option<EarlyQueryEnd>,
    /// Advice, if more specific than the general one for the reason.
    pub(crate) hint: Option<&'static str>,
    /// Number of unanswered requests since the last valid reply.
    pub(crate) unanswered_at_end: u64,
    /// Requests that the server's host rejected with ICMP "port unreachable".
    pub(crate) port_unreachable: u64,
    rate_kisses: u32,
}

impl PolledServerStats {
    /// Ends the polls for this reason; the first reason is kept.
    pub(crate) fn end_polls(&mut self, reason: QueryEndReason, message: impl Into<String>) {
        self.end_reason.get_or_insert_with(|| EarlyQueryEnd { reason, message: message.into() });
    }

    /// Returns the number of intervals from one exchange to the next, which each RATE kiss doubles.
    pub(crate) const fn intervals_per_exchange(&self) -> u64 {
        1 << self.rate_kisses
    }

    /// Counts a Kiss-o'-Death and acts on it: RATE doubles the interval, and ends the polls after
    /// [`RATE_KISSES_MAX`] times; DENY and RSTR end the polls (RFC 5905, section 7.4).
    pub(crate) fn apply_kiss(&mut self, code: [u8; 4]) {
        let name = String::from_utf8_lossy(&code).into_owned();
        match &code {
            b"RATE" => {
                self.rate_kisses += 1;
                if self.rate_kisses > RATE_KISSES_MAX {
                    self.rate_kisses = RATE_KISSES_MAX;
                    self.end_polls(QueryEndReason::Kiss, "it kept requesting a lower rate (RATE)");
                }
            }
            b"DENY" | b"RSTR" => {
                self.end_polls(QueryEndReason::Kiss, format!("it refuses access ({name})"));
            }
            _ => {}
        }
        *self.counts.kisses.entry(name).or_default() += 1;
    }

    /// Counts an exchange without a valid reply in time.
    pub(crate) fn count_lost(&mut self) {
        self.counts.lost += 1;
        self.unanswered_at_end += 1;
    }

    /// Counts a valid reply and stores the server state in it.
    pub(crate) fn count_reply(&mut self, header: &Header, interleaved: bool) {
        self.counts.received += 1;
        self.unanswered_at_end = 0;
        self.counts.interleaved += u64::from(interleaved);
        let is_unsynchronised = header.reply_status() == Some(ReplyStatus::Unsynchronised);
        self.counts.unsynchronised += u64::from(is_unsynchronised);
        self.server_state = Some(server_state(header));
    }

    /// Adds a completed exchange as a sample.
    pub(crate) fn add_exchange(&mut self, exchange: &NtpExchange, own_precision: i8) {
        let NtpExchange { t1, t2, t3, t4, .. } = *exchange;
        let precision = ExchangeTimestampPrecisions {
            server: exchange.precision,
            local: own_precision,
            conversion: t1.conversion_error + t4.conversion_error,
        };
        let measured = offset_and_delay(t1.at, [t2, t3], t4.at, &precision);
        packet_timestamp::count_source(&mut self.transmit_timestamps, t1.source);
        packet_timestamp::count_source(&mut self.receive_timestamps, t4.source);
        self.samples.push(ExchangeSample {
            sequence: exchange.slot,
            t1_ns: t1.at.as_ns(),
            t2_ns: measured.t2.as_ns(),
            t3_ns: measured.t3.as_ns(),
            t4_ns: t4.at.as_ns(),
            offset_ns: measured.offset.as_ns(),
            delay_ns: measured.delay.as_ns(),
            dispersion_ns: measured.dispersion_ns,
            transmit: t1.source,
            receive: t4.source,
            interleaved: exchange.interleaved,
        });
    }
}

fn server_state(header: &Header) -> QueriedServerState {
    QueriedServerState {
        leap: match header.leap {
            LeapIndicator::None => LeapState::None,
            LeapIndicator::Insert => LeapState::Insert,
            LeapIndicator::Delete => LeapState::Delete,
            LeapIndicator::Unsynchronised => LeapState::Unsynchronised,
        },
        version: header.version,
        stratum: header.stratum,
        reference_id: reference_id(header.stratum, header.reference_id),
        root_delay_ns: header.root_delay.to_span().as_ns().unsigned_abs(),
        root_dispersion_ns: header.root_dispersion.to_span().as_ns().unsigned_abs(),
        precision: header.precision,
    }
}

/// Formats a reference identifier: printable text of a primary or unsynchronised server as such;
/// otherwise four bytes in dotted form, an IPv4 address or a hash of an IPv6 address (RFC 5905,
/// section 7.3).
fn reference_id(stratum: u8, id: [u8; 4]) -> String {
    let text = id.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_text = !text.is_empty()
        && text.iter().all(u8::is_ascii_graphic)
        && id[text.len()..].iter().all(|byte| *byte == 0);
    if is_text && !(2..16).contains(&stratum) {
        return String::from_utf8_lossy(text).into_owned();
    }
    std::net::Ipv4Addr::from(id).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reference_identifiers_are_read_as_their_stratum_has_them() {
        assert_eq!(reference_id(1, *b"GPS\0"), "GPS");
        assert_eq!(reference_id(1, *b"PTP4"), "PTP4");
        assert_eq!(reference_id(2, *b"GPS\0"), "71.80.83.0");
        assert_eq!(reference_id(3, [192, 0, 2, 1]), "192.0.2.1");
        assert_eq!(reference_id(16, *b"INIT"), "INIT");
        assert_eq!(reference_id(16, [0; 4]), "0.0.0.0");
        assert_eq!(reference_id(1, *b"A\0B\0"), "65.0.66.0");
    }

    #[test]
    fn a_kiss_slows_down_or_ends() {
        let mut account = PolledServerStats::default();
        for expected in [2, 4, 8, 16, 16] {
            assert_eq!(account.end_reason, None);
            account.apply_kiss(*b"RATE");
            assert_eq!(account.intervals_per_exchange(), expected);
        }
        assert_eq!(account.end_reason.as_ref().map(|end| end.reason), Some(QueryEndReason::Kiss));
        assert_eq!(account.counts.kisses["RATE"], 5);
        let mut account = PolledServerStats::default();
        account.apply_kiss(*b"NKEY");
        assert_eq!((account.end_reason.is_none(), account.intervals_per_exchange()), (true, 1));
        account.apply_kiss(*b"DENY");
        assert!(account.end_reason.unwrap().message.contains("DENY"));
    }

    proptest! {
        #[test]
        fn any_identifier_has_a_text(stratum: u8, id: [u8; 4]) {
            let text = reference_id(stratum, id);
            prop_assert!(!text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()));
        }
    }
}
