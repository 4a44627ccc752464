//! Fix reports in sentences without a date: GGA, GLL, GNS and GSA (IEC 61162-1). Of a receiver that
//! sends ZDA but no RMC, only these show whether its time is from satellites. Pure.

use super::sentence::{SentenceFields, Talker};

/// GGA quality indicators without a satellite fix: invalid, dead reckoning, manual, simulator.
const QUALITIES_WITHOUT_FIX: [&[u8]; 4] = [b"0", b"6", b"7", b"8"];
/// Mode indicators without a satellite fix: not valid, estimated, manual, simulator.
pub(super) const MODES_WITHOUT_FIX: &[u8] = b"NEMS";

/// Fix report of a talker's receiver, from a sentence without a date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FixReport {
    /// Talker of the sentence.
    pub(super) talker: Talker,
    /// True if there is a fix.
    pub(super) has_fix: bool,
    /// True for GSA, which some receivers send for each satellite system, used or not.
    pub(super) is_of_one_system: bool,
}

impl FixReport {
    /// Parses the text between `$` and `*`; `None` if the sentence contains no fix report.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (talker, fields) = text.as_bytes().split_first_chunk()?;
        let fields = SentenceFields::from_text(fields);
        let kind = fields.get(0)?;
        let field = |index| fields.get(index).filter(|field| !field.is_empty());
        let is_no_mode = |mode: &u8| MODES_WITHOUT_FIX.contains(&mode.to_ascii_uppercase());
        let has_fix = match kind {
            b"GGA" => !QUALITIES_WITHOUT_FIX.contains(&field(6)?),
            b"GLL" => {
                let is_valid = field(6)?.eq_ignore_ascii_case(b"A");
                is_valid && !field(7).is_some_and(|mode| mode.iter().all(is_no_mode))
            }
            b"GNS" => !field(6)?.iter().all(is_no_mode),
            b"GSA" => field(2)? != b"1",
            _ => return None,
        };
        Some(Self { talker: *talker, has_fix, is_of_one_system: kind == b"GSA" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_without_a_date_report_a_fix_or_none() {
        for (text, expected) in [
            ("GPGGA,081253.00,,,,,0,00,99.99,,,,,,", Some(false)),
            ("GPGGA,081253.00,4807.0,N,01131.0,E,6,00,99.99,,,,,,", Some(false)),
            ("GPGGA,081253.00,4807.0,N,01131.0,E,1,08,0.9,545.4,M,46.9,M,,", Some(true)),
            ("GPGGA,081253.00,4807.0,N,01131.0,E,9,08,0.9,545.4,M,46.9,M,,", Some(true)),
            ("GPGGA,081253.00", None),
            ("GPGGA,,,,,,,,,,,,,,", None),
            ("GPGLL,,,,,081253.00,V,N", Some(false)),
            ("GPGLL,4807.0,N,01131.0,E,081253.00,A", Some(true)),
            ("GPGLL,4807.0,N,01131.0,E,081253.00,A,D", Some(true)),
            ("GPGLL,4807.0,N,01131.0,E,081253.00,A,n", Some(false)),
            ("GNGNS,081253.00,,,,,NN,00,99.99,,,,", Some(false)),
            ("GNGNS,081253.00,4807.0,N,01131.0,E,NA,05,1.1,,,,", Some(true)),
            ("GPGSA,A,1,,,,,,,,,,,,,99.99,99.99,99.99", Some(false)),
            ("GPGSA,A,3,04,05,,,,,,,,,,,2.5,1.3,2.1", Some(true)),
            ("GPRMC,081253,A,,,,,,,270219,,,A", None),
            ("GP", None),
            ("", None),
        ] {
            assert_eq!(FixReport::parse(text).map(|note| note.has_fix), expected, "{text}");
        }
    }
}
