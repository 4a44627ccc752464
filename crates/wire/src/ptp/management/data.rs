//! Data of management TLVs: the data sets and other state of a clock (IEEE 1588-2019, clauses 8.2
//! and 15.5.3). Data of one byte has no type here; it is encoded as that byte and a zero.

use zerocopy::{FromBytes, IntoBytes};

use super::layouts::{
    CurrentDataSetLayout, DefaultDataSetLayout, ParentDataSetLayout, PortDataSetLayout,
    TimePropertiesLayout,
};
use crate::ParseError;
use crate::ptp::message::Grandmaster;
use crate::ptp::{PortIdentity, PtpTimestamp, TimeInterval, TimestampLayout};

pub use super::text::{ClockDescription, emit_text, text_len};

/// Identifiers of management data (table 59).
pub mod id {
    /// Identifier without data (`NULL_PTP_MANAGEMENT`).
    pub const NULL_MANAGEMENT: u16 = 0x0000;
    /// Description of the clock and its location.
    pub const CLOCK_DESCRIPTION: u16 = 0x0001;
    /// Name assigned by the user (IEEE 1588, userDescription).
    pub const USER_DESCRIPTION: u16 = 0x0002;
    /// Fault log of the clock.
    pub const FAULT_LOG: u16 = 0x0006;
    /// Default data set of the clock, a [`super::DefaultDataSet`].
    pub const DEFAULT_DATA_SET: u16 = 0x2000;
    /// Current data set of the clock, a [`super::CurrentDataSet`].
    pub const CURRENT_DATA_SET: u16 = 0x2001;
    /// Parent data set of the clock, a [`super::ParentDataSet`].
    pub const PARENT_DATA_SET: u16 = 0x2002;
    /// Time properties data set of the clock, a [`super::TimePropertiesDataSet`].
    pub const TIME_PROPERTIES_DATA_SET: u16 = 0x2003;
    /// Port data set, a [`super::PortDataSet`].
    pub const PORT_DATA_SET: u16 = 0x2004;
    /// First priority of the clock (priority1).
    pub const PRIORITY1: u16 = 0x2005;
    /// Second priority of the clock (priority2).
    pub const PRIORITY2: u16 = 0x2006;
    /// Domain number of the clock.
    pub const DOMAIN: u16 = 0x2007;
    /// True for a clock that is never a master.
    pub const SLAVE_ONLY: u16 = 0x2008;
    /// Interval of Announce messages, log2 of seconds.
    pub const LOG_ANNOUNCE_INTERVAL: u16 = 0x2009;
    /// Number of announce intervals without Announce after which a master is regarded as lost.
    pub const ANNOUNCE_RECEIPT_TIMEOUT: u16 = 0x200a;
    /// Interval of Sync messages, log2 of seconds.
    pub const LOG_SYNC_INTERVAL: u16 = 0x200b;
    /// Protocol version of the port (versionPTP).
    pub const VERSION_NUMBER: u16 = 0x200c;
    /// Time of the clock, a [`super::PtpTimestamp`].
    pub const TIME: u16 = 0x200f;
    /// Clock accuracy code (table 5).
    pub const CLOCK_ACCURACY: u16 = 0x2010;
    /// UTC offset and leap flags.
    pub const UTC_PROPERTIES: u16 = 0x2011;
    /// Traceability of time and frequency.
    pub const TRACEABILITY_PROPERTIES: u16 = 0x2012;
    /// Timescale and time source.
    pub const TIMESCALE_PROPERTIES: u16 = 0x2013;
    /// Availability of unicast negotiation.
    pub const UNICAST_NEGOTIATION_ENABLE: u16 = 0x2014;
    /// True for a port that is never a slave.
    pub const MASTER_ONLY: u16 = 0x3001;
    /// Delay mechanism of the port: 1 end-to-end, 2 peer-to-peer.
    pub const DELAY_MECHANISM: u16 = 0x6000;
    /// Minimum interval between `Pdelay_Req`, log2 of seconds.
    pub const LOG_MIN_PDELAY_REQ_INTERVAL: u16 = 0x6001;

    /// Returns true if IEEE 1588-2019 defines the identifier, whether it is supported here or not.
    #[must_use]
    pub const fn is_known(id: u16) -> bool {
        matches!(id, 0..=7 | 0x2000..=0x2021 | 0x3000..=0x3003 | 0x4000..=0x4002 | 0x6000..=0x6001)
    }
}

/// Parent data set: the master and grandmaster of a clock (clause 8.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ParentDataSet {
    /// Identity of the master's port; of a grandmaster, its own clock and port 0.
    pub port: PortIdentity,
    /// True if `variance` and `phase_change_rate` are valid.
    pub has_statistics: bool,
    /// Observed stability of the parent clock (offsetScaledLogVariance).
    pub variance: u16,
    /// Observed phase change rate of the parent clock, in units of 2^-40 s/s.
    pub phase_change_rate: u32,
    /// Identity, quality and priorities of the grandmaster.
    pub grandmaster: Grandmaster,
}

/// Current data set: steps, offset and delay of a clock to its master (clause 8.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CurrentDataSet {
    /// Number of steps from this clock to the grandmaster; 0 for the grandmaster itself
    /// (stepsRemoved).
    pub steps_removed: u16,
    /// Offset from the master, positive if this clock is ahead.
    pub offset: TimeInterval,
    /// Mean path delay to the master.
    pub delay: TimeInterval,
}

/// Time properties data set: UTC offset, flags and source of the time (clause 8.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimePropertiesDataSet {
    /// TAI minus UTC, in seconds.
    pub utc_offset: i16,
    /// Low eight bits of [`crate::ptp::PtpFlags`].
    pub flags: u8,
    /// Time source code of the grandmaster (table 6).
    pub time_source: u8,
}

/// Default data set: properties of the clock itself (clause 8.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DefaultDataSet {
    /// True if the time of a Sync follows in a `Follow_Up`.
    pub two_step: bool,
    /// True for a clock that is never a master.
    pub slave_only: bool,
    /// Number of ports.
    pub ports: u16,
    /// Priorities, quality and identity of the clock.
    pub clock: Grandmaster,
    /// Domain number of the clock.
    pub domain: u8,
}

/// Port data set: state and intervals of a port (clause 8.2.15).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PortDataSet {
    /// Identity of the port.
    pub port: PortIdentity,
    /// State of the port (table 20).
    pub state: u8,
    /// Least interval of `Delay_Req`, log2 of seconds.
    pub log_min_delay_req: i8,
    /// Mean link delay to the neighbour; 0 with the end-to-end mechanism.
    pub peer_delay: TimeInterval,
    /// Interval of Announce, log2 of seconds.
    pub log_announce: i8,
    /// Number of announce intervals without Announce after which a master is regarded as lost.
    pub announce_receipt_timeout: u8,
    /// Interval of Sync, log2 of seconds.
    pub log_sync: i8,
    /// Delay mechanism: 1 end-to-end, 2 peer-to-peer (table 21).
    pub delay_mechanism: u8,
    /// Least interval of `Pdelay_Req`, log2 of seconds.
    pub log_min_pdelay_req: i8,
    /// Protocol version, four bits.
    pub version: u8,
}

/// Management data with a fixed length.
pub trait FixedLengthData: Sized {
    /// Length of the encoded data, in bytes.
    const LEN: usize;

    /// Parses data of exactly [`FixedLengthData::LEN`] bytes; another length is
    /// [`ParseError::Length`].
    fn parse(bytes: &[u8]) -> Result<Self, ParseError>;

    /// Writes the data to the front of `buffer` and returns their length in bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`FixedLengthData::LEN`].
    fn emit(&self, buffer: &mut [u8]) -> usize;
}

/// Implements [`FixedLengthData`] for types with conversions from and to a zerocopy layout.
macro_rules! data_by_layout {
    ($($value:ty, $layout:ty);+ $(;)?) => {$(
        impl FixedLengthData for $value {
            const LEN: usize = size_of::<$layout>();

            fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
                <$layout>::read_from_bytes(bytes).map(Self::from).map_err(|_| ParseError::Length)
            }

            fn emit(&self, buffer: &mut [u8]) -> usize {
                buffer[..Self::LEN].copy_from_slice(<$layout>::from(*self).as_bytes());
                Self::LEN
            }
        }
    )+};
}

data_by_layout! {
    DefaultDataSet, DefaultDataSetLayout;
    CurrentDataSet, CurrentDataSetLayout;
    ParentDataSet, ParentDataSetLayout;
    TimePropertiesDataSet, TimePropertiesLayout;
    PortDataSet, PortDataSetLayout;
    PtpTimestamp, TimestampLayout;
}
