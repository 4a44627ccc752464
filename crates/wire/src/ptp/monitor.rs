//! NetSync Monitor (NSM), an extension by which a client measures a master without being its slave.
//! A unicast `Delay_Req` with an empty request TLV is answered by a `Delay_Resp` with a TLV of the
//! master's data sets, and by a unicast Sync (and `Follow_Up`) with the same sequence number.
//!
//! NSM has no public standard; TLV types and layout are those of linuxptp.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::management::data::TimePropertiesDataSet;
use super::management::layouts::{CurrentDataSetLayout, ParentDataSetLayout, TimePropertiesLayout};
use super::tlv::{HEAD_LEN, Tlv};
use super::{PtpTimestamp, TimestampLayout};
use crate::ParseError;

pub use super::management::data::{CurrentDataSet, ParentDataSet};

/// Type of the request TLV; it has no value.
pub const REQUEST_TLV_TYPE: u16 = 0x21fe;
/// Type of the response TLV.
pub const RESPONSE_TLV_TYPE: u16 = 0x21ff;

/// Complete request TLV: type and length 0.
pub const REQUEST_TLV: [u8; HEAD_LEN] = [0x21, 0xfe, 0, 0];

/// Response TLV: state of a master, and of the master that it follows itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetSyncMonitorResponse<'a> {
    /// State of the master's port; 6 is MASTER (IEEE 1588-2019, table 20).
    pub port_state: u8,
    /// Network protocol code of `address` (clause 7.4.1).
    pub protocol: u16,
    /// Address of the parent: the master's own master, or itself if it is the grandmaster.
    pub address: &'a [u8],
    /// Parent data set of the master (clause 8.2.3).
    pub parent: ParentDataSet,
    /// Current data set: steps, offset and delay to the parent (clause 8.2.2).
    pub current: CurrentDataSet,
    /// TAI minus UTC, in seconds (clause 8.2.4).
    pub utc_offset: i16,
    /// Low eight bits of [`super::PtpFlags`].
    pub time_flags: u8,
    /// Time source code of the grandmaster (table 6).
    pub time_source: u8,
    /// Time at which the master received its last Sync.
    pub last_sync: PtpTimestamp,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MonitorHeadLayout {
    port_state: u8,
    reserved: u8,
    protocol: U16,
    address_len: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MonitorDataSetsLayout {
    parent: ParentDataSetLayout,
    current: CurrentDataSetLayout,
    time: TimePropertiesLayout,
    last_sync: TimestampLayout,
}

const _: () = assert!(size_of::<MonitorDataSetsLayout>() == 64);

impl<'a> NetSyncMonitorResponse<'a> {
    /// Returns the length of the response TLV with an address of `address_len` bytes, in bytes.
    #[must_use]
    pub const fn tlv_len(address_len: usize) -> usize {
        HEAD_LEN + size_of::<MonitorHeadLayout>() + address_len + size_of::<MonitorDataSetsLayout>()
    }

    /// Parses a response TLV; `None` if the TLV is of another type. A value of the wrong length is
    /// an error.
    #[must_use]
    pub fn from_tlv(tlv: &Tlv<'a>) -> Option<Result<Self, ParseError>> {
        (tlv.type_number == RESPONSE_TLV_TYPE).then(|| Self::parse(tlv.value))
    }

    fn parse(value: &'a [u8]) -> Result<Self, ParseError> {
        let (head, rest) =
            MonitorHeadLayout::ref_from_prefix(value).map_err(|_| ParseError::Truncated)?;
        let address_len = usize::from(head.address_len.get());
        let (address, rest) = rest.split_at_checked(address_len).ok_or(ParseError::Length)?;
        let foot = MonitorDataSetsLayout::ref_from_bytes(rest).map_err(|_| ParseError::Length)?;
        let time = TimePropertiesDataSet::from(foot.time);
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

    /// Writes the response as a TLV to the front of `buffer` and returns its length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`NetSyncMonitorResponse::tlv_len`] for this address.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = Self::tlv_len(self.address.len());
        let (tlv_head, value) = buffer[..length].split_at_mut(HEAD_LEN);
        Tlv { type_number: RESPONSE_TLV_TYPE, value: &[] }.emit(tlv_head);
        tlv_head[2..].copy_from_slice(&(value.len() as u16).to_be_bytes());
        let (head, rest) = value.split_at_mut(size_of::<MonitorHeadLayout>());
        let (address, foot) = rest.split_at_mut(self.address.len());
        let layout = MonitorHeadLayout {
            port_state: self.port_state,
            reserved: 0,
            protocol: U16::new(self.protocol),
            address_len: U16::new(self.address.len() as u16),
        };
        head.copy_from_slice(layout.as_bytes());
        address.copy_from_slice(self.address);
        foot.copy_from_slice(self.data_sets_layout().as_bytes());
        length
    }

    fn data_sets_layout(&self) -> MonitorDataSetsLayout {
        let (utc_offset, time_source) = (self.utc_offset, self.time_source);
        let time = TimePropertiesDataSet { utc_offset, flags: self.time_flags, time_source };
        MonitorDataSetsLayout {
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
        assert_eq!((tlv, rest.len()), (Tlv { type_number: REQUEST_TLV_TYPE, value: &[] }, 0));
        assert_eq!(NetSyncMonitorResponse::from_tlv(&tlv), None);
    }

    #[test]
    fn another_length_than_the_address_leaves_is_malformed() {
        let mut value = [0; 70];
        assert!(NetSyncMonitorResponse::parse(&value).is_ok());
        assert_eq!(NetSyncMonitorResponse::parse(&value[..69]), Err(ParseError::Length));
        assert_eq!(NetSyncMonitorResponse::parse(&value[..5]), Err(ParseError::Truncated));
        value[5] = 1;
        assert_eq!(NetSyncMonitorResponse::parse(&value), Err(ParseError::Length));
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
            let response = NetSyncMonitorResponse {
                port_state: numbers.0,
                protocol: numbers.1,
                address: &address,
                parent: ParentDataSet {
                    port: PortIdentity { clock: parent.0, port: parent.1 },
                    has_statistics: parent.2,
                    variance: parent.3,
                    phase_change_rate: parent.4,
                    grandmaster: Grandmaster { priority1, ..Grandmaster::default() },
                },
                current: CurrentDataSet {
                    steps_removed: numbers.5,
                    offset: TimeInterval(numbers.6),
                    delay: TimeInterval(numbers.7),
                },
                utc_offset: numbers.2,
                time_flags: numbers.3,
                time_source: numbers.4,
                last_sync: PtpTimestamp::new(seconds, 7),
            };
            let mut bytes = vec![0; NetSyncMonitorResponse::tlv_len(address.len())];
            prop_assert_eq!(response.emit(&mut bytes), bytes.len());
            let (tlv, rest) = Tlv::parse(&bytes).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(NetSyncMonitorResponse::from_tlv(&tlv), Some(Ok(response)));
        }
    }
}
