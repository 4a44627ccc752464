//! zerocopy layouts of the data sets, with conversions from and to the public types (IEEE
//! 1588-2019, clause 15.5.3).

use zerocopy::byteorder::network_endian::{I16, I64, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::data::{
    CurrentDataSet, DefaultDataSet, ParentDataSet, PortDataSet, TimePropertiesDataSet,
};
use crate::ptp::message::GrandmasterLayout;
use crate::ptp::{PortIdentityLayout, TimeInterval};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(in crate::ptp) struct ParentDataSetLayout {
    port: PortIdentityLayout,
    has_statistics: u8,
    reserved: u8,
    variance: U16,
    phase_change_rate: U32,
    grandmaster: GrandmasterLayout,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(in crate::ptp) struct CurrentDataSetLayout {
    steps_removed: U16,
    offset: I64,
    delay: I64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(in crate::ptp) struct TimePropertiesLayout {
    utc_offset: I16,
    flags: u8,
    time_source: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct DefaultDataSetLayout {
    flags: u8,
    reserved: u8,
    ports: U16,
    clock: GrandmasterLayout,
    domain: u8,
    reserved_2: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct PortDataSetLayout {
    port: PortIdentityLayout,
    state: u8,
    log_min_delay_req: i8,
    peer_delay: I64,
    log_announce: i8,
    announce_receipt_timeout: u8,
    log_sync: i8,
    delay_mechanism: u8,
    log_min_pdelay_req: i8,
    version: u8,
}

const _: () =
    assert!(size_of::<DefaultDataSetLayout>() == 20 && size_of::<CurrentDataSetLayout>() == 18);
const _: () =
    assert!(size_of::<ParentDataSetLayout>() == 32 && size_of::<PortDataSetLayout>() == 26);
const _: () = assert!(size_of::<TimePropertiesLayout>() == 4);

const TWO_STEP: u8 = 1;
const SLAVE_ONLY: u8 = 2;

impl From<ParentDataSet> for ParentDataSetLayout {
    fn from(parent: ParentDataSet) -> Self {
        Self {
            port: parent.port.into(),
            has_statistics: u8::from(parent.has_statistics),
            reserved: 0,
            variance: U16::new(parent.variance),
            phase_change_rate: U32::new(parent.phase_change_rate),
            grandmaster: parent.grandmaster.into(),
        }
    }
}

impl From<ParentDataSetLayout> for ParentDataSet {
    fn from(layout: ParentDataSetLayout) -> Self {
        Self {
            port: layout.port.into(),
            has_statistics: layout.has_statistics != 0,
            variance: layout.variance.get(),
            phase_change_rate: layout.phase_change_rate.get(),
            grandmaster: layout.grandmaster.into(),
        }
    }
}

impl From<CurrentDataSet> for CurrentDataSetLayout {
    fn from(current: CurrentDataSet) -> Self {
        Self {
            steps_removed: U16::new(current.steps_removed),
            offset: I64::new(current.offset.0),
            delay: I64::new(current.delay.0),
        }
    }
}

impl From<CurrentDataSetLayout> for CurrentDataSet {
    fn from(layout: CurrentDataSetLayout) -> Self {
        Self {
            steps_removed: layout.steps_removed.get(),
            offset: TimeInterval(layout.offset.get()),
            delay: TimeInterval(layout.delay.get()),
        }
    }
}

impl From<TimePropertiesDataSet> for TimePropertiesLayout {
    fn from(properties: TimePropertiesDataSet) -> Self {
        let TimePropertiesDataSet { utc_offset, flags, time_source } = properties;
        Self { utc_offset: I16::new(utc_offset), flags, time_source }
    }
}

impl From<TimePropertiesLayout> for TimePropertiesDataSet {
    fn from(layout: TimePropertiesLayout) -> Self {
        let TimePropertiesLayout { utc_offset, flags, time_source } = layout;
        Self { utc_offset: utc_offset.get(), flags, time_source }
    }
}

impl From<DefaultDataSet> for DefaultDataSetLayout {
    fn from(set: DefaultDataSet) -> Self {
        let two_step = if set.two_step { TWO_STEP } else { 0 };
        let slave_only = if set.slave_only { SLAVE_ONLY } else { 0 };
        Self {
            flags: two_step | slave_only,
            reserved: 0,
            ports: U16::new(set.ports),
            clock: set.clock.into(),
            domain: set.domain,
            reserved_2: 0,
        }
    }
}

impl From<DefaultDataSetLayout> for DefaultDataSet {
    fn from(layout: DefaultDataSetLayout) -> Self {
        Self {
            two_step: layout.flags & TWO_STEP != 0,
            slave_only: layout.flags & SLAVE_ONLY != 0,
            ports: layout.ports.get(),
            clock: layout.clock.into(),
            domain: layout.domain,
        }
    }
}

impl From<PortDataSet> for PortDataSetLayout {
    fn from(set: PortDataSet) -> Self {
        Self {
            port: set.port.into(),
            state: set.state,
            log_min_delay_req: set.log_min_delay_req,
            peer_delay: I64::new(set.peer_delay.0),
            log_announce: set.log_announce,
            announce_receipt_timeout: set.announce_receipt_timeout,
            log_sync: set.log_sync,
            delay_mechanism: set.delay_mechanism,
            log_min_pdelay_req: set.log_min_pdelay_req,
            version: set.version & 0xf,
        }
    }
}

impl From<PortDataSetLayout> for PortDataSet {
    fn from(layout: PortDataSetLayout) -> Self {
        Self {
            port: layout.port.into(),
            state: layout.state,
            log_min_delay_req: layout.log_min_delay_req,
            peer_delay: TimeInterval(layout.peer_delay.get()),
            log_announce: layout.log_announce,
            announce_receipt_timeout: layout.announce_receipt_timeout,
            log_sync: layout.log_sync,
            delay_mechanism: layout.delay_mechanism,
            log_min_pdelay_req: layout.log_min_pdelay_req,
            version: layout.version & 0xf,
        }
    }
}
