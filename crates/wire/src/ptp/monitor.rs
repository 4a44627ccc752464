//! NetSync Monitor, an extension by which a client measures a master without being its slave: a
//! unicast `Delay_Req` with an empty TLV requests a `Delay_Resp` with a TLV of the master's data
//! sets, and a Sync (with its `Follow_Up`) to the same client with the same number.
//!
//! It has no public standard. The numbers and the layout are those that linuxptp's master and
//! client exchange.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::management::data::TimeProperties;
use super::management::layouts::{CurrentLayout, ParentLayout, TimePropertiesLayout};
use super::tlv::{HEAD_LEN, Tlv};
use super::{PtpTimestamp, TimestampLayout};
use crate::Malformed;

pub use super::management::data::{Current, Parent};

/// Type of the request TLV; it has no value.
pub const REQUEST: u16 = 0x21fe;
/// Type of the response TLV.
pub const RESPONSE: u16 = 0x21ff;

/// Complete request TLV.
pub const REQUEST_TLV: [u8; HEAD_LEN] = [0x21, 0xfe, 0, 0];

/// State of a master and of its own master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MonitorResponse<'a> {
    /// State of its port, 6 for a master (IEEE 1588-2019, table 20).
    pub port_state: u8,
    /// Network protocol of its master, or its own (clause 7.4.1).
    pub protocol: u16,
    /// Address of its master, or its own.
    pub address: &'a [u8],
    /// Its master, or itself (clause 8.2.3).
    pub parent: Parent,
    /// Its relation to that master (clause 8.2.2).
    pub current: Current,
    /// TAI minus UTC, in seconds (clause 8.2.4).
    pub utc_offset: i16,
    /// Low eight bits of [`super::PtpFlags`].
    pub time_flags: u8,
    /// Time source of the grandmaster.
    pub time_source: u8,
    /// Time of the last Sync received.
    pub last_sync: PtpTimestamp,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeadLayout {
    port_state: u8,
    reserved: u8,
    protocol: U16,
    address_len: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FootLayout {
    parent: ParentLayout,
    current: CurrentLayout,
    time: TimePropertiesLayout,
    last_sync: TimestampLayout,
}

const _: () = assert!(size_of::<FootLayout>() == 64);

impl<'a> MonitorResponse<'a> {
    /// Returns the length of the TLV with an address of `address_len` bytes.
    #[must_use]
    pub const fn tlv_len(address_len: usize) -> usize {
        HEAD_LEN + size_of::<HeadLayout>() + address_len + size_of::<FootLayout>()
    }

    /// Parses it from a TLV; `None` if that is of another type.
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'a>) -> Option<Result<Self, Malformed>> {
        (tlv.number == RESPONSE).then(|| Self::parse(tlv.value))
    }

    fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = HeadLayout::ref_from_prefix(value).map_err(|_| Malformed::Truncated)?;
        let address_len = usize::from(head.address_len.get());
        let (address, rest) = rest.split_at_checked(address_len).ok_or(Malformed::Length)?;
        let foot = FootLayout::ref_from_bytes(rest).map_err(|_| Malformed::Length)?;
        let time = TimeProperties::from(foot.time);
        Ok(Self {
            port_state: head.port_state,
            protocol: head.protocol.get(),
            address,
            parent: foot.parent.into(),
            current: foot.current.into(),
            utc_offset: time.utc_offset,
            time_flags: time.flags,
            time_source: time.time_source,
            last_sync: foot.last_sync.into(),
        })
    }

    /// Writes it as a TLV to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// If `buffer` is shorter than that; see [`MonitorResponse::tlv_len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = Self::tlv_len(self.address.len());
        let (tlv_head, value) = buffer[..length].split_at_mut(HEAD_LEN);
        Tlv { number: RESPONSE, value: &[] }.emit(tlv_head);
        tlv_head[2..].copy_from_slice(&(value.len() as u16).to_be_bytes());
        let (head, rest) = value.split_at_mut(size_of::<HeadLayout>());
        let (address, foot) = rest.split_at_mut(self.address.len());
        let layout = HeadLayout {
            port_state: self.port_state,
            reserved: 0,
            protocol: U16::new(self.protocol),
            address_len: U16::new(self.address.len() as u16),
        };
        head.copy_from_slice(layout.as_bytes());
        address.copy_from_slice(self.address);
        foot.copy_from_slice(self.foot().as_bytes());
        length
    }

    fn foot(&self) -> FootLayout {
        let (utc_offset, time_source) = (self.utc_offset, self.time_source);
        let time = TimeProperties { utc_offset, flags: self.time_flags, time_source };
        FootLayout {
            parent: self.parent.into(),
            current: self.current.into(),
            time: time.into(),
            last_sync: self.last_sync.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptp::message::Grandmaster;
    use crate::ptp::{PortIdentity, TimeInterval};
    use proptest::prelude::*;

    #[test]
    fn the_request_is_an_empty_tlv() {
        let (tlv, rest) = Tlv::parse(&REQUEST_TLV).unwrap();
        assert_eq!((tlv, rest.len()), (Tlv { number: REQUEST, value: &[] }, 0));
        assert_eq!(MonitorResponse::from_tlv(&tlv), None);
    }

    #[test]
    fn another_length_than_the_address_leaves_is_malformed() {
        let mut value = [0; 70];
        assert!(MonitorResponse::parse(&value).is_ok());
        assert_eq!(MonitorResponse::parse(&value[..69]), Err(Malformed::Length));
        assert_eq!(MonitorResponse::parse(&value[..5]), Err(Malformed::Truncated));
        value[5] = 1;
        assert_eq!(MonitorResponse::parse(&value), Err(Malformed::Length));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers: (u8, u16, i16, u8, u8, u16, i64, i64),
            parent: (u64, u16, bool, u16, u32),
            address in proptest::collection::vec(any::<u8>(), 0..10).prop_map(|half| [&*half, &*half].concat()),
            priority1: u8,
            seconds in 0u64..1 << 48,
        ) {
            let response = MonitorResponse {
                port_state: numbers.0,
                protocol: numbers.1,
                address: &address,
                parent: Parent {
                    port: PortIdentity { clock: parent.0, port: parent.1 },
                    has_statistics: parent.2,
                    variance: parent.3,
                    phase_change_rate: parent.4,
                    grandmaster: Grandmaster { priority1, ..Grandmaster::default() },
                },
                current: Current {
                    steps_removed: numbers.5,
                    offset: TimeInterval(numbers.6),
                    delay: TimeInterval(numbers.7),
                },
                utc_offset: numbers.2,
                time_flags: numbers.3,
                time_source: numbers.4,
                last_sync: PtpTimestamp::new(seconds, 7),
            };
            let mut bytes = vec![0; MonitorResponse::tlv_len(address.len())];
            prop_assert_eq!(response.emit(&mut bytes), bytes.len());
            let (tlv, rest) = Tlv::parse(&bytes).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(MonitorResponse::from_tlv(&tlv), Some(Ok(response)));
        }
    }
}
