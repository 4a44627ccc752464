//! TLVs in the suffix of a message (IEEE 1588-2019, clause 14.1), and those of unicast negotiation,
//! by which a client requests messages from a master (clause 16.1).

use super::MessageType;
use crate::ParseError;

/// Length of the type and length fields of a TLV, in bytes.
pub const HEAD_LEN: usize = 4;

/// Type of the TLV that requests unicast messages (table 52).
pub const REQUEST_UNICAST_TYPE: u16 = 0x0004;
/// Type of the TLV that grants or denies unicast messages.
pub const GRANT_UNICAST_TYPE: u16 = 0x0005;
/// Type of the TLV that cancels unicast messages.
pub const CANCEL_UNICAST_TYPE: u16 = 0x0006;
/// Type of the TLV that acknowledges a cancellation.
pub const ACKNOWLEDGE_CANCEL_TYPE: u16 = 0x0007;

/// TLV: type, length and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlv<'a> {
    /// TLV type (table 52).
    pub type_number: u16,
    /// Value, of an even length.
    pub value: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// Parses the TLV at the front of `bytes`; returns it with the remaining bytes. An odd length
    /// is [`ParseError::Length`].
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().ok_or(ParseError::Truncated)?;
        let [a, b, c, d] = *head;
        let length = usize::from(u16::from_be_bytes([c, d]));
        let (value, rest) = rest.split_at_checked(length).ok_or(ParseError::Truncated)?;
        if length % 2 != 0 {
            return Err(ParseError::Length);
        }
        Ok((Self { type_number: u16::from_be_bytes([a, b]), value }, rest))
    }

    /// Writes the TLV to the front of `buffer` and returns its length in bytes, type and length
    /// fields included.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`HEAD_LEN`] and the value together.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = HEAD_LEN + self.value.len();
        let (head, value) = buffer[..length].split_at_mut(HEAD_LEN);
        head[..2].copy_from_slice(&self.type_number.to_be_bytes());
        head[2..].copy_from_slice(&(self.value.len() as u16).to_be_bytes());
        value.copy_from_slice(self.value);
        length
    }
}

/// Iterator over the TLVs of a suffix. Ends after the first malformed TLV, which it returns as an
/// error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    /// Returns an iterator over the TLVs of a suffix.
    #[must_use]
    pub const fn new(suffix: &'a [u8]) -> Self {
        Self { rest: suffix }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = Tlv::parse(self.rest);
        self.rest = parsed.map_or(&[], |(_, rest)| rest);
        Some(parsed.map(|(tlv, _)| tlv))
    }
}

/// Maximum length of a unicast negotiation TLV in bytes, its header included.
pub const UNICAST_LEN_MAX: usize = HEAD_LEN + 8;

/// TLV of unicast negotiation between client and master (clause 16.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnicastNegotiationTlv {
    /// Request of a client for unicast messages.
    Request {
        /// Type of the requested messages.
        kind: MessageType,
        /// Interval of the messages, log2 of seconds.
        log_interval: i8,
        /// Requested duration in seconds.
        duration_s: u32,
    },
    /// Answer of a master to a request: a grant or a denial.
    Grant {
        /// Type of the granted messages.
        kind: MessageType,
        /// Interval of the messages, log2 of seconds.
        log_interval: i8,
        /// Granted duration in seconds; 0 denies the request.
        duration_s: u32,
        /// True if the master expects to grant a renewal.
        renewal_invited: bool,
    },
    /// Cancellation of a grant, by the client or the master.
    Cancel(UnicastCancellation),
    /// Acknowledgement of a cancellation.
    AcknowledgeCancel(UnicastCancellation),
}

/// Content of a cancellation and of its acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnicastCancellation {
    /// Type of the messages that end.
    pub kind: MessageType,
    /// Value of maintainRequest: the grantee's request stays in force.
    pub maintain_request: bool,
    /// Value of maintainGrant: the grantor's grant stays in force.
    pub maintain_grant: bool,
}

const RENEWAL_INVITED: u8 = 1;
const MAINTAIN_REQUEST: u8 = 1;
const MAINTAIN_GRANT: u8 = 2;

impl UnicastCancellation {
    fn parse(value: &[u8]) -> Result<Self, ParseError> {
        let &[bits, _] = value else { return Err(ParseError::Length) };
        Ok(Self {
            kind: message_type(bits)?,
            maintain_request: bits & MAINTAIN_REQUEST != 0,
            maintain_grant: bits & MAINTAIN_GRANT != 0,
        })
    }

    const fn bits(self) -> u8 {
        let request = if self.maintain_request { MAINTAIN_REQUEST } else { 0 };
        let grant = if self.maintain_grant { MAINTAIN_GRANT } else { 0 };
        (self.kind as u8) << 4 | request | grant
    }
}

/// Returns the message type in the upper four bits; [`ParseError::Length`] if it is reserved.
fn message_type(bits: u8) -> Result<MessageType, ParseError> {
    MessageType::from_bits(bits >> 4).ok_or(ParseError::Length)
}

impl UnicastNegotiationTlv {
    /// Parses a unicast negotiation TLV; `None` if the TLV is of another type. A value of the wrong
    /// length or a reserved message type is [`ParseError::Length`].
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'_>) -> Option<Result<Self, ParseError>> {
        Some(match tlv.type_number {
            REQUEST_UNICAST_TYPE => Self::parse_request(tlv.value),
            GRANT_UNICAST_TYPE => Self::parse_grant(tlv.value),
            CANCEL_UNICAST_TYPE => UnicastCancellation::parse(tlv.value).map(Self::Cancel),
            ACKNOWLEDGE_CANCEL_TYPE => {
                UnicastCancellation::parse(tlv.value).map(Self::AcknowledgeCancel)
            }
            _ => return None,
        })
    }

    fn parse_request(value: &[u8]) -> Result<Self, ParseError> {
        let &[bits, interval, a, b, c, d] = value else { return Err(ParseError::Length) };
        Ok(Self::Request {
            kind: message_type(bits)?,
            log_interval: interval.cast_signed(),
            duration_s: u32::from_be_bytes([a, b, c, d]),
        })
    }

    fn parse_grant(value: &[u8]) -> Result<Self, ParseError> {
        let &[bits, interval, a, b, c, d, _, flags] = value else { return Err(ParseError::Length) };
        Ok(Self::Grant {
            kind: message_type(bits)?,
            log_interval: interval.cast_signed(),
            duration_s: u32::from_be_bytes([a, b, c, d]),
            renewal_invited: flags & RENEWAL_INVITED != 0,
        })
    }

    /// Writes the negotiation as a TLV to the front of `buffer` and returns its length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than the TLV; [`UNICAST_LEN_MAX`] bytes always suffice.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let head = |kind: MessageType, log_interval: i8, duration_s: u32| {
            let [a, b, c, d] = duration_s.to_be_bytes();
            [(kind as u8) << 4, log_interval.cast_unsigned(), a, b, c, d, 0, 0]
        };
        let (number, value, length) = match *self {
            Self::Request { kind, log_interval, duration_s } => {
                (REQUEST_UNICAST_TYPE, head(kind, log_interval, duration_s), 6)
            }
            Self::Grant { kind, log_interval, duration_s, renewal_invited } => {
                let mut value = head(kind, log_interval, duration_s);
                value[7] = if renewal_invited { RENEWAL_INVITED } else { 0 };
                (GRANT_UNICAST_TYPE, value, 8)
            }
            Self::Cancel(ended) => (CANCEL_UNICAST_TYPE, [ended.bits(), 0, 0, 0, 0, 0, 0, 0], 2),
            Self::AcknowledgeCancel(ended) => {
                (ACKNOWLEDGE_CANCEL_TYPE, [ended.bits(), 0, 0, 0, 0, 0, 0, 0], 2)
            }
        };
        Tlv { type_number: number, value: &value[..length] }.emit(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn request_and_grant_by_hand() {
        let request = [0x00, 0x04, 0x00, 0x06, 0xb0, 0xff, 0x00, 0x00, 0x01, 0x2c];
        let (tlv, rest) = Tlv::parse(&request).unwrap();
        assert!(rest.is_empty());
        let kind = MessageType::Announce;
        let requested = UnicastNegotiationTlv::Request { kind, log_interval: -1, duration_s: 300 };
        assert_eq!(UnicastNegotiationTlv::from_tlv(&tlv), Some(Ok(requested)));
        let grant = [0x00, 0x05, 0x00, 0x08, 0x90, 0x01, 0x00, 0x00, 0x00, 0x0a, 0x00, 0x01];
        let (tlv, _) = Tlv::parse(&grant).unwrap();
        let granted = UnicastNegotiationTlv::Grant {
            kind: MessageType::DelayResp,
            log_interval: 1,
            duration_s: 10,
            renewal_invited: true,
        };
        assert_eq!(UnicastNegotiationTlv::from_tlv(&tlv), Some(Ok(granted)));
    }

    #[test]
    fn a_length_beyond_the_end_ends_the_suffix() {
        let suffix = [0x21, 0xfe, 0x00, 0x00, 0x00, 0x04, 0x00, 0x06, 0xb0];
        let tlvs: Vec<_> = Tlvs::new(&suffix).collect();
        assert_eq!(tlvs, [Ok(Tlv { type_number: 0x21fe, value: &[] }), Err(ParseError::Truncated)]);
        assert_eq!(Tlv::parse(&[0, 4, 0, 1, 0]), Err(ParseError::Length), "an odd length");
    }

    fn any_unicast() -> impl Strategy<Value = UnicastNegotiationTlv> {
        let kind = || (0..MessageType::ALL.len()).prop_map(|index| MessageType::ALL[index]);
        let ended = || {
            (kind(), any::<(bool, bool)>()).prop_map(
                |(kind, (maintain_request, maintain_grant))| UnicastCancellation {
                    kind,
                    maintain_request,
                    maintain_grant,
                },
            )
        };
        prop_oneof![
            (kind(), any::<(i8, u32)>()).prop_map(|(kind, (log_interval, duration_s))| {
                UnicastNegotiationTlv::Request { kind, log_interval, duration_s }
            }),
            (kind(), any::<(i8, u32, bool)>()).prop_map(
                |(kind, (log_interval, duration_s, renewal_invited))| {
                    UnicastNegotiationTlv::Grant { kind, log_interval, duration_s, renewal_invited }
                }
            ),
            ended().prop_map(UnicastNegotiationTlv::Cancel),
            ended().prop_map(UnicastNegotiationTlv::AcknowledgeCancel),
        ]
    }

    proptest! {
        #[test]
        fn negotiations_round_trip(all in proptest::collection::vec(any_unicast(), 0..5)) {
            let mut bytes = [0; 5 * UNICAST_LEN_MAX];
            let mut at = 0;
            for one in &all {
                at += one.emit(&mut bytes[at..]);
            }
            let back: Vec<_> = Tlvs::new(&bytes[..at])
                .map(|tlv| UnicastNegotiationTlv::from_tlv(&tlv.unwrap()).unwrap().unwrap())
                .collect();
            prop_assert_eq!(back, all);
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            for tlv in Tlvs::new(&bytes).flatten() {
                let _ = UnicastNegotiationTlv::from_tlv(&tlv);
            }
        }
    }
}
