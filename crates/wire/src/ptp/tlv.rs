//! TLVs after a message: type, length and value, one after the other (IEEE 1588-2019, clause 14.1);
//! and those of unicast negotiation, by which a client requests messages from a master (clause
//! 16.1.4).

use super::MessageType;
use crate::Malformed;

/// Length of a TLV without its value, in bytes.
pub const HEAD_LEN: usize = 4;

/// Type of the TLV that requests unicast messages (table 52).
pub const REQUEST_UNICAST: u16 = 0x0004;
/// Type of the TLV that grants or denies them.
pub const GRANT_UNICAST: u16 = 0x0005;
/// Type of the TLV that cancels them.
pub const CANCEL_UNICAST: u16 = 0x0006;
/// Type of the TLV that acknowledges the cancellation.
pub const ACKNOWLEDGE_CANCEL_UNICAST: u16 = 0x0007;

/// Type, length and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlv<'a> {
    /// Type number.
    pub number: u16,
    /// Value, of an even length.
    pub value: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// Parses one; returns it with the bytes after it.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().ok_or(Malformed::Truncated)?;
        let [a, b, c, d] = *head;
        let length = usize::from(u16::from_be_bytes([c, d]));
        let (value, rest) = rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
        if length % 2 != 0 {
            return Err(Malformed::Length);
        }
        Ok((Self { number: u16::from_be_bytes([a, b]), value }, rest))
    }

    /// Writes it to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`HEAD_LEN`] and the value together.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = HEAD_LEN + self.value.len();
        let (head, value) = buffer[..length].split_at_mut(HEAD_LEN);
        head[..2].copy_from_slice(&self.number.to_be_bytes());
        head[2..].copy_from_slice(&(self.value.len() as u16).to_be_bytes());
        value.copy_from_slice(self.value);
        length
    }
}

/// TLVs of a suffix, one after the other. Iteration ends after the first that is malformed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    /// Returns the TLVs of a suffix.
    #[must_use]
    pub const fn new(suffix: &'a [u8]) -> Self {
        Self { rest: suffix }
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = Tlv::parse(self.rest);
        self.rest = parsed.map_or(&[], |(_, rest)| rest);
        Some(parsed.map(|(tlv, _)| tlv))
    }
}

/// Maximum length of a negotiation TLV.
pub const UNICAST_LEN_MAX: usize = HEAD_LEN + 8;

/// Unicast negotiation between client and master (clause 16.1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unicast {
    /// Request of a client for messages.
    Request {
        /// Message type.
        kind: MessageType,
        /// Interval of the messages, log2 of seconds.
        log_interval: i8,
        /// Duration in seconds.
        duration_s: u32,
    },
    /// Grant of a master.
    Grant {
        /// Message type.
        kind: MessageType,
        /// Interval of the messages, log2 of seconds.
        log_interval: i8,
        /// Duration in seconds; 0 denies them.
        duration_s: u32,
        /// True if the master would grant them again.
        renewal_invited: bool,
    },
    /// Cancellation.
    Cancel(Ended),
    /// Acknowledgement of a cancellation.
    AcknowledgeCancel(Ended),
}

/// Cancelled messages, and the part of the agreement that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Message type.
    pub kind: MessageType,
    /// True if the client's own request stays.
    pub maintain_request: bool,
    /// True if the master's grant stays.
    pub maintain_grant: bool,
}

const RENEWAL_INVITED: u8 = 1;
const MAINTAIN_REQUEST: u8 = 1;
const MAINTAIN_GRANT: u8 = 2;

impl Ended {
    fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let &[bits, _] = value else { return Err(Malformed::Length) };
        Ok(Self {
            kind: kind(bits)?,
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

/// Returns the message type in the high four bits.
fn kind(bits: u8) -> Result<MessageType, Malformed> {
    MessageType::from_bits(bits >> 4).ok_or(Malformed::Length)
}

impl Unicast {
    /// Parses it from a TLV; `None` if that is of another type.
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'_>) -> Option<Result<Self, Malformed>> {
        Some(match tlv.number {
            REQUEST_UNICAST => Self::request(tlv.value),
            GRANT_UNICAST => Self::grant(tlv.value),
            CANCEL_UNICAST => Ended::parse(tlv.value).map(Self::Cancel),
            ACKNOWLEDGE_CANCEL_UNICAST => Ended::parse(tlv.value).map(Self::AcknowledgeCancel),
            _ => return None,
        })
    }

    fn request(value: &[u8]) -> Result<Self, Malformed> {
        let &[bits, interval, a, b, c, d] = value else { return Err(Malformed::Length) };
        Ok(Self::Request {
            kind: kind(bits)?,
            log_interval: interval.cast_signed(),
            duration_s: u32::from_be_bytes([a, b, c, d]),
        })
    }

    fn grant(value: &[u8]) -> Result<Self, Malformed> {
        let &[bits, interval, a, b, c, d, _, flags] = value else { return Err(Malformed::Length) };
        Ok(Self::Grant {
            kind: kind(bits)?,
            log_interval: interval.cast_signed(),
            duration_s: u32::from_be_bytes([a, b, c, d]),
            renewal_invited: flags & RENEWAL_INVITED != 0,
        })
    }

    /// Writes it as a TLV to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than that; [`UNICAST_LEN_MAX`] is always enough.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let head = |kind: MessageType, log_interval: i8, duration_s: u32| {
            let [a, b, c, d] = duration_s.to_be_bytes();
            [(kind as u8) << 4, log_interval.cast_unsigned(), a, b, c, d, 0, 0]
        };
        let (number, value, length) = match *self {
            Self::Request { kind, log_interval, duration_s } => {
                (REQUEST_UNICAST, head(kind, log_interval, duration_s), 6)
            }
            Self::Grant { kind, log_interval, duration_s, renewal_invited } => {
                let mut value = head(kind, log_interval, duration_s);
                value[7] = if renewal_invited { RENEWAL_INVITED } else { 0 };
                (GRANT_UNICAST, value, 8)
            }
            Self::Cancel(ended) => (CANCEL_UNICAST, [ended.bits(), 0, 0, 0, 0, 0, 0, 0], 2),
            Self::AcknowledgeCancel(ended) => {
                (ACKNOWLEDGE_CANCEL_UNICAST, [ended.bits(), 0, 0, 0, 0, 0, 0, 0], 2)
            }
        };
        Tlv { number, value: &value[..length] }.emit(buffer)
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
        let requested = Unicast::Request { kind, log_interval: -1, duration_s: 300 };
        assert_eq!(Unicast::from_tlv(&tlv), Some(Ok(requested)));
        let grant = [0x00, 0x05, 0x00, 0x08, 0x90, 0x01, 0x00, 0x00, 0x00, 0x0a, 0x00, 0x01];
        let (tlv, _) = Tlv::parse(&grant).unwrap();
        let granted = Unicast::Grant {
            kind: MessageType::DelayResp,
            log_interval: 1,
            duration_s: 10,
            renewal_invited: true,
        };
        assert_eq!(Unicast::from_tlv(&tlv), Some(Ok(granted)));
    }

    #[test]
    fn a_length_beyond_the_end_ends_the_suffix() {
        let suffix = [0x21, 0xfe, 0x00, 0x00, 0x00, 0x04, 0x00, 0x06, 0xb0];
        let tlvs: Vec<_> = Tlvs::new(&suffix).collect();
        assert_eq!(tlvs, [Ok(Tlv { number: 0x21fe, value: &[] }), Err(Malformed::Truncated)]);
        assert_eq!(Tlv::parse(&[0, 4, 0, 1, 0]), Err(Malformed::Length), "an odd length");
    }

    fn any_unicast() -> impl Strategy<Value = Unicast> {
        let kind = || (0..MessageType::ALL.len()).prop_map(|index| MessageType::ALL[index]);
        let ended = || {
            (kind(), any::<(bool, bool)>()).prop_map(
                |(kind, (maintain_request, maintain_grant))| Ended {
                    kind,
                    maintain_request,
                    maintain_grant,
                },
            )
        };
        prop_oneof![
            (kind(), any::<(i8, u32)>()).prop_map(|(kind, (log_interval, duration_s))| {
                Unicast::Request { kind, log_interval, duration_s }
            }),
            (kind(), any::<(i8, u32, bool)>()).prop_map(
                |(kind, (log_interval, duration_s, renewal_invited))| Unicast::Grant {
                    kind,
                    log_interval,
                    duration_s,
                    renewal_invited
                }
            ),
            ended().prop_map(Unicast::Cancel),
            ended().prop_map(Unicast::AcknowledgeCancel),
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
                .map(|tlv| Unicast::from_tlv(&tlv.unwrap()).unwrap().unwrap())
                .collect();
            prop_assert_eq!(back, all);
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            for tlv in Tlvs::new(&bytes).flatten() {
                let _ = Unicast::from_tlv(&tlv);
            }
        }
    }
}
