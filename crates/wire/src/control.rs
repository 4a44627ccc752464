//! NTP control messages, mode 6 (RFC 9327): only reading of the system variables. Messages that
//! change the state of a server are not implemented.

use horolog_time::{NS_PER_S, NtpTimestamp, Span};
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;
use crate::ntp::{AssociationMode, LeapIndicator};

/// Length of the header of a control message, in bytes.
pub const HEADER_LEN: usize = 12;
/// Maximum data length of one message, in bytes (RFC 9327, section 2).
pub const DATA_MAX: usize = 468;
/// Names of the variables in [`SystemVariables`], as a request lists them.
pub const SYSTEM_VARIABLES: &str = "leap,stratum,refid,rootdelay,rootdisp,reftime";

const VERSION: u8 = 2;
const OPCODE_READ_VARIABLES: u8 = 2;
const RESPONSE_BIT: u8 = 0x80;
const ERROR_BIT: u8 = 0x40;
const MORE_BIT: u8 = 0x20;
const OPCODE_MASK: u8 = 0x1f;

/// Header of a control message (RFC 9327, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Version number, 0 to 7.
    pub version: u8,
    /// True for a response.
    pub response: bool,
    /// True for an error response; its error code is in the status.
    pub error: bool,
    /// True if more fragments follow.
    pub more: bool,
    /// Operation code, five bits; 2 reads variables.
    pub opcode: u8,
    /// Sequence number; a response has that of its request.
    pub sequence: u16,
    /// System status word, or of an error response the error code in the upper byte.
    pub status: u16,
    /// Association identifier; 0 stands for the system itself.
    pub association: u16,
    /// Offset of the data in the whole response, in bytes.
    pub offset: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ControlHeaderLayout {
    leap_version_mode: u8,
    flags_opcode: u8,
    sequence: U16,
    status: U16,
    association: U16,
    offset: U16,
    count: U16,
}

const _: () = assert!(size_of::<ControlHeaderLayout>() == HEADER_LEN);

impl Header {
    /// Returns a request to read system variables (opcode 2, association 0).
    #[must_use]
    pub const fn read_variables(sequence: u16) -> Self {
        Self {
            version: VERSION,
            response: false,
            error: false,
            more: false,
            opcode: OPCODE_READ_VARIABLES,
            sequence,
            status: 0,
            association: 0,
            offset: 0,
        }
    }

    /// Returns true if this is a response to `request`: same opcode, sequence number and
    /// association.
    #[must_use]
    pub const fn is_response_to(&self, request: &Self) -> bool {
        self.response
            && self.opcode == request.opcode
            && self.sequence == request.sequence
            && self.association == request.association
    }

    /// Parses a message into its header and its data. Padding and trailing bytes are dropped. A
    /// mode other than 6 is [`ParseError::Version`], a data length beyond the message
    /// [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (layout, rest) =
            ControlHeaderLayout::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        if AssociationMode::from_bits(layout.leap_version_mode) != AssociationMode::Control {
            return Err(ParseError::Version);
        }
        let data = rest.get(..layout.count.get().into()).ok_or(ParseError::Length)?;
        let is_set = |bit| layout.flags_opcode & bit != 0;
        let header = Self {
            version: (layout.leap_version_mode >> 3) & 7,
            response: is_set(RESPONSE_BIT),
            error: is_set(ERROR_BIT),
            more: is_set(MORE_BIT),
            opcode: layout.flags_opcode & OPCODE_MASK,
            sequence: layout.sequence.get(),
            status: layout.status.get(),
            association: layout.association.get(),
            offset: layout.offset.get(),
        };
        Ok((header, data))
    }

    /// Writes the message with `data`, padded to a multiple of 4 bytes, to the front of `buffer`;
    /// returns the length in bytes.
    ///
    /// # Panics
    /// If `data` is longer than [`DATA_MAX`], or `buffer` shorter than the message.
    pub fn emit(&self, data: &[u8], buffer: &mut [u8]) -> usize {
        assert!(data.len() <= DATA_MAX);
        let flag = |set: bool, bit| if set { bit } else { 0 };
        let flags = flag(self.response, RESPONSE_BIT)
            | flag(self.error, ERROR_BIT)
            | flag(self.more, MORE_BIT);
        let layout = ControlHeaderLayout {
            leap_version_mode: (self.version & 7) << 3 | AssociationMode::Control as u8,
            flags_opcode: flags | self.opcode & OPCODE_MASK,
            sequence: U16::new(self.sequence),
            status: U16::new(self.status),
            association: U16::new(self.association),
            offset: U16::new(self.offset),
            count: U16::new(data.len() as u16),
        };
        let (header, rest) = buffer.split_at_mut(HEADER_LEN);
        header.copy_from_slice(layout.as_bytes());
        let padded = data.len().next_multiple_of(4);
        rest[..data.len()].copy_from_slice(data);
        rest[data.len()..padded].fill(0);
        HEADER_LEN + padded
    }
}

/// Synchronisation state of an NTP daemon (RFC 9327, section 4, "system variables").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemVariables {
    /// Leap indicator.
    pub leap: LeapIndicator,
    /// Stratum, as the daemon reports it.
    pub stratum: u8,
    /// Reference identifier.
    pub reference_id: [u8; 4],
    /// Round-trip delay to the reference clock.
    pub root_delay: Span,
    /// Dispersion to the reference clock.
    pub root_dispersion: Span,
    /// Time of the last update of the clock.
    pub reference: NtpTimestamp,
}

impl SystemVariables {
    /// Parses the reassembled data of a response: `name=value` pairs separated by commas. Variables
    /// other than those of [`SystemVariables`] are skipped; a missing or malformed one of these is
    /// [`ParseError::Length`].
    pub fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let value = |name| find_variable(data, name).ok_or(ParseError::Length);
        let number = |name| value(name)?.parse::<u8>().map_err(|_| ParseError::Length);
        Ok(Self {
            leap: LeapIndicator::from_bits(number("leap")?),
            stratum: number("stratum")?,
            reference_id: parse_reference_id(value("refid")?).ok_or(ParseError::Length)?,
            root_delay: parse_milliseconds(value("rootdelay")?).ok_or(ParseError::Length)?,
            root_dispersion: parse_milliseconds(value("rootdisp")?).ok_or(ParseError::Length)?,
            reference: parse_timestamp(value("reftime")?).ok_or(ParseError::Length)?,
        })
    }
}

/// Returns the value of a variable without its quotation marks; `None` if it is missing.
fn find_variable<'a>(data: &'a [u8], name: &str) -> Option<&'a str> {
    let mut quoted = false;
    let is_end = |byte: &u8| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    };
    data.split(is_end).find_map(|item| {
        let text = core::str::from_utf8(item).ok()?.trim_matches(['\0', ' ', '\r', '\n', '\t']);
        let (found, value) = text.split_once('=')?;
        (found.trim_end() == name).then_some(value.trim_start().trim_matches('"'))
    })
}

/// Parses a reference identifier: an IPv4 address, or up to four characters, which some daemons
/// enclose in full stops (`.GPS.`). `None` if the text is longer.
fn parse_reference_id(text: &str) -> Option<[u8; 4]> {
    if let Ok(address) = text.parse::<core::net::Ipv4Addr>() {
        return Some(address.octets());
    }
    let bytes = text.trim_matches('.').as_bytes();
    let mut id = [0; 4];
    id.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(id)
}

fn parse_milliseconds(text: &str) -> Option<Span> {
    let ms = text.parse::<f64>().ok().filter(|ms| ms.is_finite() && *ms >= 0.0)?;
    // A conversion from a double saturates.
    Some(Span::from_ns((ms * (NS_PER_S / 1_000) as f64).round() as i64))
}

/// Parses `0xSECONDS.FRACTION`, each of eight hexadecimal digits; the prefix may be missing. `None`
/// if the text has another form.
fn parse_timestamp(text: &str) -> Option<NtpTimestamp> {
    let (seconds, fraction) = text.strip_prefix("0x").unwrap_or(text).split_once('.')?;
    let word = |digits: &str| {
        let is_valid = digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_valid { u64::from_str_radix(digits, 16).ok() } else { None }
    };
    Some(NtpTimestamp::from_bits(word(seconds)? << 32 | word(fraction)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_by_hand() {
        let mut buffer = [0xff; 32];
        let length = Header::read_variables(0x0102).emit(b"leap,", &mut buffer);
        assert_eq!(length, 20);
        assert_eq!(buffer[..12], [0x16, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(&buffer[12..20], b"leap,\0\0\0");
    }

    #[test]
    fn variables_of_daemons() {
        let ntpd = b"leap=01, stratum=2, refid=192.0.2.1,\r\nrootdelay=12.5, rootdisp=0.001,\r\n\
                     reftime=0xe0000001.80000000, version=\"ntpd, of sorts\"\r\n";
        let read = SystemVariables::parse(ntpd).unwrap();
        assert_eq!((read.leap, read.stratum), (LeapIndicator::Insert, 2));
        assert_eq!(read.reference_id, [192, 0, 2, 1]);
        assert_eq!(read.root_delay, Span::from_ns(12_500_000));
        assert_eq!(read.root_dispersion, Span::from_ns(1_000));
        assert_eq!(read.reference.to_bits(), 0xe000_0001_8000_0000);
        for (text, id) in [("GPS", *b"GPS\0"), (".PPS.", *b"PPS\0"), ("\"LOCL\"", *b"LOCL")] {
            let data = format!(
                "refid={text},x=\",leap=3\",stratum=1,leap=00,rootdelay=0,rootdisp=1,reftime=0x00000000.00000000"
            );
            let read = SystemVariables::parse(data.as_bytes()).unwrap();
            assert_eq!((read.reference_id, read.leap), (id, LeapIndicator::None));
        }
    }

    #[test]
    fn what_is_missing_or_no_number_is_refused() {
        let whole = "leap=0,stratum=1,refid=GPS,rootdelay=0,rootdisp=1,reftime=0xe0000001.80000000";
        assert!(SystemVariables::parse(whole.as_bytes()).is_ok());
        for bad in ["leap=0,", "stratum=1,", "refid=GPS,", "rootdelay=0,", "rootdisp=1,"] {
            assert!(SystemVariables::parse(whole.replace(bad, "").as_bytes()).is_err(), "{bad}");
        }
        for (right, wrong) in [
            ("stratum=1", "stratum=256"),
            ("rootdelay=0", "rootdelay=-1"),
            ("rootdelay=0", "rootdelay=nan"),
            ("refid=GPS", "refid=GNSS1"),
            ("0xe0000001.", "0xe000001."),
            ("0xe0000001.", "0x+0000001."),
        ] {
            let data = whole.replace(right, wrong);
            assert!(SystemVariables::parse(data.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_its_own_response_answers_a_request() {
        let request = Header::read_variables(7);
        let answer = Header { response: true, status: 0x618, ..request };
        assert!(answer.is_response_to(&request));
        assert!(!request.is_response_to(&request));
        assert!(!Header { sequence: 8, ..answer }.is_response_to(&request));
        assert!(!Header { association: 1, ..answer }.is_response_to(&request));
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            version in 0u8..8, flags in proptest::array::uniform3(any::<bool>()), opcode in 0u8..32,
            words in proptest::array::uniform4(any::<u16>()),
            data in proptest::collection::vec(any::<u8>(), 0..=DATA_MAX),
        ) {
            let [response, error, more] = flags;
            let [sequence, status, association, offset] = words;
            let header = Header { version, response, error, more, opcode, sequence, status, association, offset };
            let mut buffer = [0; HEADER_LEN + DATA_MAX];
            let length = header.emit(&data, &mut buffer);
            prop_assert_eq!(length % 4, 0);
            prop_assert_eq!(Header::parse(&buffer[..length]), Ok((header, data.as_slice())));
            prop_assert!(Header::parse(&buffer[..HEADER_LEN - 1]).is_err());
        }

        #[test]
        fn any_text_is_read(data in "[a-z=,\" .0-9x]{0,80}") {
            let _ = SystemVariables::parse(data.as_bytes());
        }
    }
}
