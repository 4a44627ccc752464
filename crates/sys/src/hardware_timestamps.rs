//! Hardware timestamps of an interface: capabilities of its driver, and their activation
//! (Documentation/networking/timestamping.rst, section 3; `linux/net_tstamp.h`). Interfaces are
//! looked up in the calling thread's network namespace. Clocks are read in [`crate::phc`].
#![allow(unsafe_code, reason = "the ioctls take raw pointers")]

use std::ffi::c_char;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

use crate::ethtool::{EthtoolError, TimestampCapabilities, timestamp_capabilities};
use crate::explain::explain;
use crate::undo::UndoGuard;

/// Ioctl numbers of linux/sockios.h.
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;
/// `HWTSTAMP_TX_ON` and `HWTSTAMP_TX_ONESTEP_SYNC`.
const TRANSMIT_ON: i32 = 1;
const TRANSMIT_ONE_STEP: i32 = 2;
/// `HWTSTAMP_FILTER_ALL`, `HWTSTAMP_FILTER_PTP_V2_EVENT` and `HWTSTAMP_FILTER_NTP_ALL`.
const RECEIVE_ALL: i32 = 1;
const RECEIVE_PTP: i32 = 12;
const RECEIVE_NTP: i32 = 15;

/// Packets for which timestamps are needed: a NIC that cannot timestamp every received packet may
/// be able to timestamp these.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TimestampPurpose {
    /// NTP packets.
    #[default]
    Ntp,
    /// PTP event messages.
    Ptp,
    /// PTP event messages, with one-step Sync: the NIC inserts the transmit time into each Sync.
    PtpOneStep,
}

/// `struct hwtstamp_config`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct HardwareTimestampConfig {
    flags: i32,
    transmit: i32,
    receive: i32,
}

/// Reason why an interface provides no hardware timestamps.
#[derive(Debug, thiserror::Error)]
pub enum HardwareTimestampError {
    /// The driver could not be queried.
    #[error(transparent)]
    Driver(#[from] EthtoolError),
    /// The driver supports no hardware timestamps for this purpose.
    #[error("'{0}' has no hardware timestamps: `ethtool -T {0}` shows what its driver offers")]
    NotOffered(String),
    /// The NIC does not support one-step Sync.
    #[error(
        "the NIC of '{0}' does not support one-step Sync: `ethtool -T {0}` shows what its driver \
         offers"
    )]
    NoOneStep(String),
    /// The driver refused to enable them.
    #[error("cannot enable hardware timestamps on '{interface}': {why}", why = explain(.source))]
    Refused {
        /// Name of the interface.
        interface: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Enabled hardware timestamps; dropping this restores the previous setting, as does
/// [`crate::undo::exit`].
#[derive(Debug)]
pub struct EnabledHardwareTimestamps {
    interface: String,
    clock: u32,
    received: bool,
    _undo: UndoGuard,
}

impl EnabledHardwareTimestamps {
    /// Enables hardware timestamps for all sent packets, and for received packets if the driver can
    /// timestamp all packets or all of the purpose. If this fails, nothing is changed.
    pub fn enable(
        interface: &str,
        purpose: TimestampPurpose,
    ) -> Result<Self, HardwareTimestampError> {
        let (clock, wanted) = supported_setting(interface, purpose)?;
        let refused =
            |source| HardwareTimestampError::Refused { interface: interface.to_owned(), source };
        // The socket selects the network namespace, even if another thread restores the setting.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(refused)?;
        let socket_then = socket.try_clone().map_err(refused)?;
        let mut before = HardwareTimestampConfig::default();
        // A driver that cannot report its setting has timestamps disabled by default.
        match call_ioctl(&socket, interface, SIOCGHWTSTAMP, &mut before) {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                return Err(refused(error));
            }
            _ => {}
        }
        let switch = || {
            let mut granted = wanted;
            call_ioctl(&socket, interface, SIOCSHWTSTAMP, &mut granted).map(|()| granted)
        };
        let name = interface.to_owned();
        let back = move || {
            let mut setting = before;
            // An interface that is gone has nothing to restore.
            let _ = call_ioctl(&socket_then, &name, SIOCSHWTSTAMP, &mut setting);
        };
        let (granted, undo) = UndoGuard::after_change(switch, back).map_err(refused)?;
        let received = matches!(granted.receive, RECEIVE_ALL | RECEIVE_PTP | RECEIVE_NTP);
        Ok(Self { interface: interface.to_owned(), clock, received, _undo: undo })
    }

    /// Checks that the driver supports hardware timestamps, without enabling them.
    ///
    /// # Errors
    ///
    /// Names the missing feature.
    pub fn check(interface: &str, purpose: TimestampPurpose) -> Result<(), HardwareTimestampError> {
        supported_setting(interface, purpose).map(drop)
    }

    /// Returns the name of the interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the number N of the PTP hardware clock `/dev/ptpN`.
    #[must_use]
    pub const fn clock(&self) -> u32 {
        self.clock
    }

    /// Returns true if received packets are timestamped too.
    #[must_use]
    pub const fn received(&self) -> bool {
        self.received
    }
}

/// Returns the number of the interface's PTP hardware clock, and the setting to request.
fn supported_setting(
    interface: &str,
    purpose: TimestampPurpose,
) -> Result<(u32, HardwareTimestampConfig), HardwareTimestampError> {
    let facts = timestamp_capabilities(interface)?;
    if let (Some(clock), Some(wanted)) = (facts.clock, setting_for(&facts, purpose)) {
        return Ok((clock, wanted));
    }
    let name = interface.to_owned();
    let has_others = purpose == TimestampPurpose::PtpOneStep
        && setting_for(&facts, TimestampPurpose::Ptp).is_some();
    Err(if has_others {
        HardwareTimestampError::NoOneStep(name)
    } else {
        HardwareTimestampError::NotOffered(name)
    })
}

/// Returns the setting to request; `None` if the driver does not timestamp sent packets.
fn setting_for(
    facts: &TimestampCapabilities,
    purpose: TimestampPurpose,
) -> Option<HardwareTimestampConfig> {
    let offers = |set: u32, item: i32| set & (1 << item) != 0;
    let (transmit, of_these) = match purpose {
        TimestampPurpose::Ntp => (TRANSMIT_ON, RECEIVE_NTP),
        TimestampPurpose::Ptp => (TRANSMIT_ON, RECEIVE_PTP),
        TimestampPurpose::PtpOneStep => (TRANSMIT_ONE_STEP, RECEIVE_PTP),
    };
    let receive = [RECEIVE_ALL, of_these].into_iter().find(|f| offers(facts.receive_filters, *f));
    let offered = offers(facts.transmit_types, transmit) && facts.in_hardware;
    offered.then_some(HardwareTimestampConfig {
        flags: 0,
        transmit,
        receive: receive.unwrap_or_default(),
    })
}

fn call_ioctl(
    socket: &UdpSocket,
    interface: &str,
    request: libc::Ioctl,
    setting: &mut HardwareTimestampConfig,
) -> io::Result<()> {
    // SAFETY: an ifreq is plain data, for which all zero bytes are a valid value.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = ifreq.ifr_name.len() - 1;
    for (to, from) in ifreq.ifr_name.iter_mut().zip(interface.bytes().take(room)) {
        *to = from as c_char;
    }
    ifreq.ifr_ifru.ifru_data = std::ptr::from_mut(setting).cast();
    // SAFETY: the name ends with a NUL, being shorter than its field; the data pointer is to a
    // structure of the size that both requests take, alive for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut ifreq) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(transmit_types: u32, receive_filters: u32) -> TimestampCapabilities {
        TimestampCapabilities { in_hardware: true, clock: Some(0), transmit_types, receive_filters }
    }

    #[test]
    fn the_requested_setting_follows_from_the_offered_ones() {
        let setting =
            |transmit, receive| Some(HardwareTimestampConfig { flags: 0, transmit, receive });
        let of = |facts, purpose| setting_for(&facts, purpose);
        assert_eq!(of(facts(0b10, 0b11), TimestampPurpose::Ntp), setting(1, 1));
        assert_eq!(of(facts(0b10, 1 << 15), TimestampPurpose::Ntp), setting(1, 15));
        assert_eq!(
            of(facts(0b10, 1 << 12), TimestampPurpose::Ntp),
            setting(1, 0),
            "of PTP's alone"
        );
        assert_eq!(of(facts(0b10, 1 << 12), TimestampPurpose::Ptp), setting(1, 12));
        assert_eq!(
            of(facts(0b10, 1 << 15), TimestampPurpose::Ptp),
            setting(1, 0),
            "of NTP's alone"
        );
        assert_eq!(of(facts(0b110, 0b11), TimestampPurpose::PtpOneStep), setting(2, 1));
        assert_eq!(of(facts(0b10, 0b11), TimestampPurpose::PtpOneStep), None);
        assert_eq!(of(facts(0b01, 0b11), TimestampPurpose::Ntp), None, "none of what is sent");
        let in_software = TimestampCapabilities { in_hardware: false, ..facts(2, 2) };
        assert_eq!(of(in_software, TimestampPurpose::Ntp), None);
    }

    #[test]
    fn loopback_has_none() {
        let error = EnabledHardwareTimestamps::enable("lo", TimestampPurpose::Ntp).unwrap_err();
        assert!(error.to_string().contains("'lo'"), "{error}");
        assert!(EnabledHardwareTimestamps::enable("there-is-none", TimestampPurpose::Ntp).is_err());
    }
}
