//! What is counted of one server while it is asked, and how a kiss of death changes that. Pure.

use horolog_record::{
    LeapState, QueryCounts, QueryEnd, QueryEndReason, Sample, ServerState, StampCounts,
};
use horolog_wire::ntp::{Header, Leap};

use super::client::Exchange;
use super::exchange::{Precision, measure};
use super::stamp;

/// Kisses RATE that are heeded; with the next one a server is not asked any more, when the interval
/// is sixteen times as long.
const RATE_KISSES_MAX: u32 = 4;

/// Kisses that are counted by name: those of RFC 5905, figure 13, and of RFC 8915, section 5.7. A
/// server may send any four bytes.
const KISSES: [&[u8; 4]; 15] = [
    b"ACST", b"AUTH", b"AUTO", b"BCST", b"CRYP", b"DENY", b"DROP", b"RSTR", b"INIT", b"MCST",
    b"NKEY", b"NTSN", b"RATE", b"RMOT", b"STEP",
];

/// What all other kisses are counted as.
const OTHER_KISS: &str = "other";

/// The books on one server.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) counts: QueryCounts,
    pub(crate) transmit_stamps: StampCounts,
    pub(crate) receive_stamps: StampCounts,
    pub(crate) says: Option<ServerState>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) ended: Option<QueryEnd>,
    /// Requests since the last valid reply that had none.
    pub(crate) silent: u64,
    rate_kisses: u32,
}

impl Account {
    /// Ends the questions for this reason, unless there is one already.
    pub(crate) fn end(&mut self, reason: QueryEndReason, message: impl Into<String>) {
        self.ended.get_or_insert_with(|| QueryEnd { reason, message: message.into() });
    }

    /// Intervals of the plan from one exchange to the next: twice as many after each kiss RATE.
    pub(crate) const fn stride(&self) -> u64 {
        1 << self.rate_kisses
    }

    /// Does what a kiss of death demands (RFC 5905, section 7.4).
    pub(crate) fn kiss(&mut self, code: [u8; 4]) {
        let known = KISSES.contains(&&code);
        let name =
            if known { String::from_utf8_lossy(&code) } else { OTHER_KISS.into() }.into_owned();
        match &code {
            b"RATE" => {
                self.rate_kisses += 1;
                if self.rate_kisses > RATE_KISSES_MAX {
                    self.rate_kisses = RATE_KISSES_MAX;
                    self.end(QueryEndReason::Kiss, "it went on asking for fewer requests (RATE)");
                }
            }
            b"DENY" | b"RSTR" => {
                self.end(QueryEndReason::Kiss, format!("it refuses to be asked ({name})"));
            }
            _ => {}
        }
        *self.counts.kisses.entry(name).or_default() += 1;
    }

    /// No valid reply came in time.
    pub(crate) fn lost(&mut self) {
        self.counts.lost += 1;
        self.silent += 1;
    }

    /// A valid reply came.
    pub(crate) fn received(&mut self, header: &Header, interleaved: bool) {
        self.counts.received += 1;
        self.silent = 0;
        self.counts.interleaved += u64::from(interleaved);
        self.says = Some(state(header));
    }

    /// An exchange is complete.
    pub(crate) fn complete(&mut self, exchange: &Exchange, own_precision: i8) {
        let Exchange { t1, t2, t3, t4, .. } = *exchange;
        let precision = Precision {
            server: exchange.precision,
            own: own_precision,
            conversion: t1.conversion + t4.conversion,
        };
        let measured = measure(t1.at, [t2, t3], t4.at, &precision);
        stamp::count(&mut self.transmit_stamps, t1.kind);
        stamp::count(&mut self.receive_stamps, t4.kind);
        self.samples.push(Sample {
            sequence: exchange.slot,
            t1_ns: t1.at.as_ns(),
            t2_ns: measured.t2.as_ns(),
            t3_ns: measured.t3.as_ns(),
            t4_ns: t4.at.as_ns(),
            offset_ns: measured.offset.as_ns(),
            delay_ns: measured.delay.as_ns(),
            dispersion_ns: measured.dispersion_ns,
            transmit: t1.kind,
            receive: t4.kind,
            interleaved: exchange.interleaved,
        });
    }
}

fn state(header: &Header) -> ServerState {
    ServerState {
        leap: match header.leap {
            Leap::None => LeapState::None,
            Leap::Insert => LeapState::Insert,
            Leap::Delete => LeapState::Delete,
            Leap::Unsynchronised => LeapState::Unsynchronised,
        },
        version: header.version,
        stratum: header.stratum,
        reference_id: reference_id(header.stratum, header.reference_id),
        root_delay_ns: header.root_delay.to_span().as_ns().unsigned_abs(),
        root_dispersion_ns: header.root_dispersion.to_span().as_ns().unsigned_abs(),
        precision: header.precision,
    }
}

/// A primary server's is text, padded with zeros; a secondary's is an IPv4 address, or four bytes
/// of a hash of an IPv6 address, which look like one (RFC 5905, section 7.3).
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
        let mut account = Account::default();
        for expected in [2, 4, 8, 16, 16] {
            assert_eq!(account.ended, None);
            account.kiss(*b"RATE");
            assert_eq!(account.stride(), expected);
        }
        assert_eq!(account.ended.as_ref().map(|end| end.reason), Some(QueryEndReason::Kiss));
        assert_eq!(account.counts.kisses["RATE"], 5);
        let mut account = Account::default();
        account.kiss(*b"INIT");
        assert_eq!((account.ended.is_none(), account.stride()), (true, 1));
        for code in 0..1000_u32 {
            account.kiss(code.to_be_bytes());
        }
        assert_eq!(account.counts.kisses[OTHER_KISS], 1000);
        assert_eq!(account.counts.kisses.len(), 2, "whatever a server sends");
        account.kiss(*b"DENY");
        assert!(account.ended.unwrap().message.contains("DENY"));
    }

    proptest! {
        #[test]
        fn any_identifier_has_a_text(stratum: u8, id: [u8; 4]) {
            let text = reference_id(stratum, id);
            prop_assert!(!text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()));
        }
    }
}
