//! Driver settings and statistics of an interface by the ethtool ioctls: counters, numbers of
//! queues, and generic receive offload (GRO). Interfaces are looked up in the calling thread's
//! network namespace. The structures are those of `linux/ethtool.h`.
#![allow(unsafe_code, reason = "the ethtool ioctls take raw pointers")]

use crate::explain::explain;
use std::ffi::c_char;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Ioctl number of all ethtool commands (`linux/sockios.h`).
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// Hardware transmit timestamps and raw hardware timestamps (`linux/net_tstamp.h`).
const HARDWARE_TIMESTAMPS: u32 =
    libc::SOF_TIMESTAMPING_TX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
/// String set with the names of the counters.
const ETH_SS_STATS: u32 = 1;
/// Length of one name, padding included.
const ETH_GSTRING_LEN: usize = 32;
/// Attempts to read the counters if the driver changes their number in between.
const STATS_ATTEMPTS: usize = 4;
/// Spare bytes after every response, room for 16,384 names. Kernels before 6.19 do not check the
/// buffer size for counters, so a driver that gains queues between the calls that count and read
/// them would write past an exact buffer.
const SPARE_BYTES: usize = 16_384 * ETH_GSTRING_LEN;

/// Reason for which an ethtool request failed.
#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    /// No interface has this name in this namespace.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    NoSuchInterface(String),
    /// The driver does not support the operation.
    #[error("cannot {action} of '{interface}': its driver does not support it")]
    Unsupported {
        /// Name of the interface.
        interface: String,
        /// Attempted operation, as a verb phrase.
        action: &'static str,
    },
    /// The process lacks the privilege.
    #[error(
        "cannot {action} of '{interface}': CAP_NET_ADMIN is required; run as root or with \
             sudo"
    )]
    NotPermitted {
        /// Name of the interface.
        interface: String,
        /// Attempted operation, as a verb phrase.
        action: &'static str,
    },
    /// Refusal for another reason.
    #[error("cannot {action} of '{interface}': {why}", why = explain(.source))]
    Refused {
        /// Name of the interface.
        interface: String,
        /// Attempted operation, as a verb phrase.
        action: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Numbers of queues of an interface, in use and largest. A combined queue receives and transmits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicQueueCounts {
    /// Receive-only queues in use.
    pub rx: u32,
    /// Transmit-only queues in use.
    pub tx: u32,
    /// Combined queues in use.
    pub combined: u32,
    /// Largest number of receive-only queues.
    pub rx_max: u32,
    /// Largest number of transmit-only queues.
    pub tx_max: u32,
    /// Largest number of combined queues.
    pub combined_max: u32,
}

/// Returns the driver's counters by name, as in `ethtool -S`. A veth counts the results of its XDP
/// program for each queue (`rx_queue_0_xdp_packets`, `rx_queue_0_drops`).
pub fn stats(interface: &str) -> Result<Vec<(String, u64)>, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the counters")?;
    for _ in 0..STATS_ATTEMPTS {
        let count = device.stats_count()?;
        let names =
            device.query(&[ETHTOOL_GSTRINGS, ETH_SS_STATS, count], count, ETH_GSTRING_LEN)?;
        let values = device.query(&[ETHTOOL_GSTATS, count], count, size_of::<u64>())?;
        if word(&names, 2) == count && word(&values, 1) == count {
            let names = items(&names, 3, count, ETH_GSTRING_LEN).map(name);
            let values = items(&values, 2, count, size_of::<u64>()).map(number);
            return Ok(names.zip(values).collect());
        }
    }
    Err(device.error(io::Error::from_raw_os_error(libc::EAGAIN)))
}

/// Returns the numbers of queues, as in `ethtool -l`.
pub fn channels(interface: &str) -> Result<NicQueueCounts, EthtoolError> {
    let raw = EthtoolSocket::open(interface, "read the number of queues")?.channels()?;
    Ok(NicQueueCounts {
        rx_max: raw[1],
        tx_max: raw[2],
        combined_max: raw[4],
        rx: raw[5],
        tx: raw[6],
        combined: raw[8],
    })
}

/// Sets the numbers of queues in use: `rx`, `tx` and `combined` of `wanted`; the other fields are
/// ignored. Control queues of the driver are not changed.
pub fn set_channels(interface: &str, wanted: &NicQueueCounts) -> Result<(), EthtoolError> {
    let device = EthtoolSocket::open(interface, "set the number of queues")?;
    let mut raw = device.channels()?;
    raw[0] = ETHTOOL_SCHANNELS;
    (raw[5], raw[6], raw[8]) = (wanted.rx, wanted.tx, wanted.combined);
    device.query(&raw, 0, 0).map(drop)
}

/// Returns true if the kernel merges packets received on this interface (generic receive offload).
pub fn gro(interface: &str) -> Result<bool, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the GRO setting")?;
    Ok(word(&device.query(&[ETHTOOL_GGRO, 0], 0, 0)?, 1) != 0)
}

/// Enables or disables generic receive offload.
pub fn set_gro(interface: &str, on: bool) -> Result<(), EthtoolError> {
    let device = EthtoolSocket::open(interface, "set GRO")?;
    device.query(&[ETHTOOL_SGRO, u32::from(on)], 0, 0).map(drop)
}

/// Timestamping capabilities of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampCapabilities {
    /// True if the interface's clock timestamps sent packets.
    pub in_hardware: bool,
    /// Number N of the PTP hardware clock `/dev/ptpN`; `None` without one.
    pub clock: Option<u32>,
    /// Supported transmit timestamping modes: bits numbered by `HWTSTAMP_TX_*`.
    pub transmit_types: u32,
    /// Supported receive filters: bits numbered by `HWTSTAMP_FILTER_*`.
    pub receive_filters: u32,
}

/// Returns the timestamping capabilities of the driver, as in `ethtool -T`.
pub fn timestamp_capabilities(interface: &str) -> Result<TimestampCapabilities, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the timestamping capabilities")?;
    // struct ethtool_ts_info: command, kinds, clock, transmit types, three reserved, receive
    // filters, three reserved.
    let mut request = [0; 11];
    request[0] = ETHTOOL_GET_TS_INFO;
    let answer = device.query(&request, 0, 0)?;
    Ok(TimestampCapabilities {
        in_hardware: word(&answer, 1) & HARDWARE_TIMESTAMPS == HARDWARE_TIMESTAMPS,
        clock: u32::try_from(word(&answer, 2).cast_signed()).ok(),
        transmit_types: word(&answer, 3),
        receive_filters: word(&answer, 7),
    })
}

/// Socket for one ethtool operation on an interface, whose name is for error messages.
pub(crate) struct EthtoolSocket<'a> {
    interface: &'a str,
    action: &'static str,
    /// Any socket: it selects the network namespace.
    socket: UdpSocket,
}

impl<'a> EthtoolSocket<'a> {
    pub(crate) fn open(interface: &'a str, action: &'static str) -> Result<Self, EthtoolError> {
        let possible = (1..libc::IFNAMSIZ).contains(&interface.len()) && !interface.contains('\0');
        if !possible {
            return Err(EthtoolError::NoSuchInterface(interface.to_owned()));
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|source| {
            EthtoolError::Refused { interface: interface.to_owned(), action, source }
        })?;
        Ok(Self { interface, action, socket })
    }

    /// Returns the number of counters of the driver.
    fn stats_count(&self) -> Result<u32, EthtoolError> {
        let [low, high] = to_words(1 << ETH_SS_STATS);
        let answer = self.query(&[ETHTOOL_GSSET_INFO, 0, low, high], 1, size_of::<u32>())?;
        // The kernel clears a set in the mask if the driver does not have it.
        match [word(&answer, 2), word(&answer, 3)] {
            [0, 0] => Err(self.error(io::Error::from_raw_os_error(libc::EOPNOTSUPP))),
            _ => Ok(word(&answer, 4)),
        }
    }

    /// Returns `struct ethtool_channels`: the command; the largest rx, tx, other and combined; the
    /// same four in use.
    fn channels(&self) -> Result<[u32; 9], EthtoolError> {
        let mut request = [0; 9];
        request[0] = ETHTOOL_GCHANNELS;
        let answer = self.query(&request, 0, 0)?;
        Ok(std::array::from_fn(|position| word(&answer, position)))
    }

    /// Sends `request` with room for `count` items of `size` bytes after it, and returns the buffer
    /// as changed by the kernel.
    pub(crate) fn query(
        &self,
        request: &[u32],
        count: u32,
        size: usize,
    ) -> Result<Vec<u8>, EthtoolError> {
        let mut buffer: Vec<u8> = request.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let length = buffer.len() + count as usize * size;
        buffer.resize(length + SPARE_BYTES, 0);
        // SAFETY: an ifreq is plain data, for which all zero bytes are a valid value.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in ifreq.ifr_name.iter_mut().zip(self.interface.bytes()) {
            *to = from as c_char;
        }
        ifreq.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        // SAFETY: the name is shorter than its field, so it ends with a NUL; the data pointer is to
        // a buffer that outlives the call and has room for the command's fixed structure, for the
        // items announced and for SPARE_BYTES beyond them.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut ifreq) };
        if result < 0 {
            return Err(self.error(io::Error::last_os_error()));
        }
        buffer.truncate(length);
        Ok(buffer)
    }

    fn error(&self, source: io::Error) -> EthtoolError {
        let interface = self.interface.to_owned();
        let action = self.action;
        match source.raw_os_error() {
            Some(libc::ENODEV) => EthtoolError::NoSuchInterface(interface),
            Some(libc::EOPNOTSUPP) => EthtoolError::Unsupported { interface, action },
            Some(libc::EPERM) => EthtoolError::NotPermitted { interface, action },
            _ => EthtoolError::Refused { interface, action, source },
        }
    }
}

/// Splits a 64-bit word into two 32-bit words, in host byte order.
pub(crate) fn to_words(value: u64) -> [u32; 2] {
    let bytes = value.to_ne_bytes();
    [word(&bytes, 0), word(&bytes, 1)]
}

/// Returns the 32-bit word at index `position`; 0 beyond the end.
pub(crate) fn word(bytes: &[u8], position: usize) -> u32 {
    bytes
        .chunks_exact(size_of::<u32>())
        .nth(position)
        .and_then(|chunk| chunk.try_into().ok())
        .map_or(0, u32::from_ne_bytes)
}

/// Returns `count` items of `size` bytes after the first `words` 32-bit words.
pub(crate) fn items(
    bytes: &[u8],
    words: usize,
    count: u32,
    size: usize,
) -> impl Iterator<Item = &[u8]> {
    let start = words * size_of::<u32>();
    bytes.get(start..).unwrap_or_default().chunks_exact(size).take(count as usize)
}

/// Returns the text of a fixed-length field without padding; a full field has no terminator.
pub(crate) fn name(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim().to_owned()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interface_is_named() {
        for interface in ["no-such-if", "", "far-too-long-for-a-name", "a\0b"] {
            let error = stats(interface).unwrap_err();
            assert!(matches!(error, EthtoolError::NoSuchInterface(_)), "{error}");
        }
    }

    #[test]
    fn loopback_has_no_counters_of_its_own() {
        let error = stats("lo").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the counters of 'lo': its driver does not support it"
        );
        assert!(matches!(channels("lo"), Err(EthtoolError::Unsupported { .. })));
    }

    #[test]
    fn loopback_has_no_clock_of_its_own() {
        let facts = timestamp_capabilities("lo").unwrap();
        assert_eq!((facts.in_hardware, facts.clock), (false, None));
    }

    #[test]
    fn a_name_may_fill_its_field() {
        assert_eq!(name(&[b'x'; ETH_GSTRING_LEN]), "x".repeat(ETH_GSTRING_LEN));
        assert_eq!(name(b"rx_drops\0\0\0"), "rx_drops");
    }

    #[test]
    fn words_and_items_stop_at_the_end() {
        let bytes: Vec<u8> = [1u32, 2, 3].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!((word(&bytes, 1), word(&bytes, 3)), (2, 0));
        assert_eq!(items(&bytes, 1, 5, 4).count(), 2);
        let [low, high] = to_words(1 << ETH_SS_STATS);
        assert_eq!(low | high, 1 << ETH_SS_STATS);
    }
}
