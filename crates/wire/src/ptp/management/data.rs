//! The data of management: data sets and what else a clock tells of itself (IEEE 1588-2019, clauses
//! 8.2 and 15.5.3). Those of one byte need no value: they are that byte and a zero.

use zerocopy::{FromBytes, IntoBytes};

use super::layouts::{
    CurrentLayout, DefaultLayout, ParentLayout, PortDataLayout, TimePropertiesLayout,
};
use crate::Malformed;
use crate::ptp::message::Grandmaster;
use crate::ptp::{PortIdentity, PtpTimestamp, TimeInterval, TimestampLayout};

pub use super::text::{ClockDescription, emit_text, text_len};

/// What can be asked for (table 59).
pub mod id {
    /// Nothing.
    pub const NULL_MANAGEMENT: u16 = 0x0000;
    /// What the clock is, and where.
    pub const CLOCK_DESCRIPTION: u16 = 0x0001;
    /// What its owner calls it.
    pub const USER_DESCRIPTION: u16 = 0x0002;
    /// The log of faults.
    pub const FAULT_LOG: u16 = 0x0006;
    /// See [`super::DefaultDataSet`].
    pub const DEFAULT_DATA_SET: u16 = 0x2000;
    /// See [`super::Current`].
    pub const CURRENT_DATA_SET: u16 = 0x2001;
    /// See [`super::Parent`].
    pub const PARENT_DATA_SET: u16 = 0x2002;
    /// See [`super::TimeProperties`].
    pub const TIME_PROPERTIES_DATA_SET: u16 = 0x2003;
    /// See [`super::PortDataSet`].
    pub const PORT_DATA_SET: u16 = 0x2004;
    /// The first rank.
    pub const PRIORITY1: u16 = 0x2005;
    /// The second rank.
    pub const PRIORITY2: u16 = 0x2006;
    /// The domain.
    pub const DOMAIN: u16 = 0x2007;
    /// Whether the clock is never a master.
    pub const SLAVE_ONLY: u16 = 0x2008;
    /// The interval of Announce.
    pub const LOG_ANNOUNCE_INTERVAL: u16 = 0x2009;
    /// After how many of them without one a master is gone.
    pub const ANNOUNCE_RECEIPT_TIMEOUT: u16 = 0x200a;
    /// The interval of Sync.
    pub const LOG_SYNC_INTERVAL: u16 = 0x200b;
    /// The version of the protocol.
    pub const VERSION_NUMBER: u16 = 0x200c;
    /// Its time, a [`super::PtpTimestamp`].
    pub const TIME: u16 = 0x200f;
    /// How accurate the clock is.
    pub const CLOCK_ACCURACY: u16 = 0x2010;
    /// How far its time is from UTC.
    pub const UTC_PROPERTIES: u16 = 0x2011;
    /// Whether time and frequency can be traced.
    pub const TRACEABILITY_PROPERTIES: u16 = 0x2012;
    /// Its timescale and source.
    pub const TIMESCALE_PROPERTIES: u16 = 0x2013;
    /// Whether unicast messages can be asked for.
    pub const UNICAST_NEGOTIATION_ENABLE: u16 = 0x2014;
    /// Whether a port is never that of a slave.
    pub const MASTER_ONLY: u16 = 0x3001;
    /// How delays are measured.
    pub const DELAY_MECHANISM: u16 = 0x6000;
    /// The least interval of `Pdelay_Req`.
    pub const LOG_MIN_PDELAY_REQ_INTERVAL: u16 = 0x6001;

    /// Whether the standard gives an identifier a meaning, be it answered here or not.
    #[must_use]
    pub const fn is_known(id: u16) -> bool {
        matches!(id, 0..=7 | 0x2000..=0x2021 | 0x3000..=0x3003 | 0x4000..=0x4002 | 0x6000..=0x6001)
    }
}

/// The parent data set (clause 8.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Parent {
    /// The master's port.
    pub port: PortIdentity,
    /// Whether the two that follow are measured.
    pub has_statistics: bool,
    /// Stability of the master, as seen.
    pub variance: u16,
    /// Rate of the master, as seen.
    pub phase_change_rate: u32,
    /// The grandmaster.
    pub grandmaster: Grandmaster,
}

/// The current data set (clause 8.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Current {
    /// How many clocks are between it and the grandmaster.
    pub steps_removed: u16,
    /// What it is ahead of its master.
    pub offset: TimeInterval,
    /// The delay to its master.
    pub delay: TimeInterval,
}

/// The time properties data set (clause 8.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimeProperties {
    /// TAI less UTC, in seconds.
    pub utc_offset: i16,
    /// The low eight bits of [`crate::ptp::Flags`].
    pub flags: u8,
    /// Where the grandmaster's time is from (table 6).
    pub time_source: u8,
}

/// The default data set (clause 8.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DefaultDataSet {
    /// Whether a `Follow_Up` tells the time of a Sync.
    pub two_step: bool,
    /// Whether the clock is never a master.
    pub slave_only: bool,
    /// How many ports it has.
    pub ports: u16,
    /// The clock itself: ranks, quality and identity.
    pub clock: Grandmaster,
    /// The domain.
    pub domain: u8,
}

/// The port data set (clause 8.2.15).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PortDataSet {
    /// Which port it is.
    pub port: PortIdentity,
    /// Its state (table 20).
    pub state: u8,
    /// The least interval of `Delay_Req`, log2 of seconds.
    pub log_min_delay_req: i8,
    /// The delay to the neighbour, or 0.
    pub peer_delay: TimeInterval,
    /// The interval of Announce, log2 of seconds.
    pub log_announce: i8,
    /// After how many of them without one a master is gone.
    pub announce_receipt_timeout: u8,
    /// The interval of Sync, log2 of seconds.
    pub log_sync: i8,
    /// 1 end to end, 2 peer to peer (table 21).
    pub delay_mechanism: u8,
    /// The least interval of `Pdelay_Req`, log2 of seconds.
    pub log_min_pdelay_req: i8,
    /// The version of the protocol, four bits.
    pub version: u8,
}

/// Data that has one length.
pub trait Data: Sized {
    /// Its length, in bytes.
    const LEN: usize;

    /// Reads it.
    fn parse(bytes: &[u8]) -> Result<Self, Malformed>;

    /// Writes it to the front of `buffer` and returns its length.
    ///
    /// # Panics
    /// When `buffer` is shorter than [`Data::LEN`].
    fn emit(&self, buffer: &mut [u8]) -> usize;
}

/// Implements [`Data`] by a layout that is converted to and fro.
macro_rules! data_by_layout {
    ($($value:ty, $layout:ty);+ $(;)?) => {$(
        impl Data for $value {
            const LEN: usize = size_of::<$layout>();

            fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
                <$layout>::read_from_bytes(bytes).map(Self::from).map_err(|_| Malformed::Length)
            }

            fn emit(&self, buffer: &mut [u8]) -> usize {
                buffer[..Self::LEN].copy_from_slice(<$layout>::from(*self).as_bytes());
                Self::LEN
            }
        }
    )+};
}

data_by_layout! {
    DefaultDataSet, DefaultLayout;
    Current, CurrentLayout;
    Parent, ParentLayout;
    TimeProperties, TimePropertiesLayout;
    PortDataSet, PortDataLayout;
    PtpTimestamp, TimestampLayout;
}
