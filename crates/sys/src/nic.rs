//! Driver data of a NIC beyond [`crate::ethtool`]: rings, coalescing, offloads, the distribution of
//! packets over queues, speed. Read through the ethtool ioctls, nothing is set. Interfaces are
//! looked up in the calling thread's network namespace. The structures are those of
//! `linux/ethtool.h`.

use crate::ethtool::{EthtoolDevice, EthtoolError, items, name, word};

const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GRXRINGS: u32 = 0x2d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// The set of strings that names the features.
const ETH_SS_FEATURES: u32 = 4;
/// Length of one name, padding included.
const ETH_GSTRING_LEN: usize = 32;
/// Maximum number of entries of a table of queues; the largest of any driver is a fraction.
const TABLE_MAX: u32 = 65_536;
/// Words of `struct ethtool_coalesce`, `struct ethtool_ringparam` and `struct ethtool_cmd`.
const COALESCE_WORDS: usize = 23;
const RING_WORDS: usize = 9;
const SETTINGS_WORDS: usize = 11;
/// `struct ethtool_drvinfo`.
const DRIVER_BYTES: usize = 196;
/// Value of an unknown speed.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// Driver and device of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// Its name, such as `ixgbe` or `veth`.
    pub name: String,
    /// Firmware of the NIC; empty if not reported.
    pub firmware: String,
    /// Bus address of the device, such as `0000:03:00.0`; empty if it has none.
    pub bus: String,
}

/// Descriptors of the receive and transmit rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Received packets that can wait.
    pub rx: u32,
    /// Packets to send that can wait.
    pub tx: u32,
    /// The largest `rx`.
    pub rx_max: u32,
    /// The largest `tx`.
    pub tx_max: u32,
}

/// Interrupt coalescing by time and by packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalescing {
    /// Time from a packet received to its interrupt, in µs.
    pub rx_us: u32,
    /// Packets received until an interrupt.
    pub rx_frames: u32,
    /// Time from a packet sent to its interrupt, in µs.
    pub tx_us: u32,
    /// Packets sent until an interrupt.
    pub tx_frames: u32,
    /// True if the driver changes the first two by the load.
    pub adaptive_rx: bool,
    /// True if it changes the other two.
    pub adaptive_tx: bool,
}

/// Offload or other feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Its name in the kernel, such as `rx-gro`.
    pub name: String,
    /// True if it is on.
    pub on: bool,
    /// True if it can be changed.
    pub changeable: bool,
}

/// Distribution of received packets over queues (RSS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RssTable {
    /// Queues that can take part.
    pub queues: u32,
    /// The queue of each entry of the table; a packet's hash chooses the entry.
    pub table: Vec<u32>,
    /// Length of the hash's key in bytes.
    pub key_bytes: u32,
}

/// Negotiated speed of an interface's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Megabits per second; `None` if unknown.
    pub mbit_s: Option<u32>,
    /// True if both directions work at once; `None` if unknown.
    pub full_duplex: Option<bool>,
}

/// Available timestamps: bits by `SOF_TIMESTAMPING_*`, `HWTSTAMP_TX_*`, `HWTSTAMP_FILTER_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampBits {
    /// Sources of timestamps.
    pub kinds: u32,
    /// Number N of the NIC's clock `/dev/ptpN`.
    pub clock: Option<u32>,
    /// Of sent packets.
    pub transmit_types: u32,
    /// Of received packets.
    pub receive_filters: u32,
}

/// Returns the driver of the interface.
pub fn driver(interface: &str) -> Result<Driver, EthtoolError> {
    let device = EthtoolDevice::open(interface, "read the driver")?;
    let mut request = vec![0; DRIVER_BYTES / size_of::<u32>()];
    request[0] = ETHTOOL_GDRVINFO;
    let answer = device.query(&request, 0, 0)?;
    // After the command: driver, version, firmware and bus, 32 bytes each.
    let text = |index: usize| {
        let start = size_of::<u32>() + index * ETH_GSTRING_LEN;
        name(answer.get(start..start + ETH_GSTRING_LEN).unwrap_or_default())
    };
    // Drivers that have no firmware or bus write one of these.
    let value_or_empty = |text: String| if text == "N/A" { String::new() } else { text };
    Ok(Driver { name: text(0), firmware: value_or_empty(text(2)), bus: value_or_empty(text(3)) })
}

/// Returns the ring sizes.
pub fn rings(interface: &str) -> Result<Rings, EthtoolError> {
    let device = EthtoolDevice::open(interface, "read the rings")?;
    let mut request = [0; RING_WORDS];
    request[0] = ETHTOOL_GRINGPARAM;
    let answer = device.query(&request, 0, 0)?;
    // At most rx, mini, jumbo, tx; then those in use.
    let at = |index| word(&answer, index);
    Ok(Rings { rx_max: at(1), tx_max: at(4), rx: at(5), tx: at(8) })
}

/// Returns the interrupt coalescing.
pub fn coalescing(interface: &str) -> Result<Coalescing, EthtoolError> {
    let device = EthtoolDevice::open(interface, "read the coalescing settings")?;
    let mut request = [0; COALESCE_WORDS];
    request[0] = ETHTOOL_GCOALESCE;
    let answer = device.query(&request, 0, 0)?;
    let at = |index| word(&answer, index);
    Ok(Coalescing {
        rx_us: at(1),
        rx_frames: at(2),
        tx_us: at(5),
        tx_frames: at(6),
        adaptive_rx: at(10) != 0,
        adaptive_tx: at(11) != 0,
    })
}

/// Returns the features of an interface, in the kernel's order.
pub fn features(interface: &str) -> Result<Vec<Feature>, EthtoolError> {
    let device = EthtoolDevice::open(interface, "read the features")?;
    let [low, high] = crate::ethtool::halves(1 << ETH_SS_FEATURES);
    let answer = device.query(&[ETHTOOL_GSSET_INFO, 0, low, high], 1, size_of::<u32>())?;
    let count = word(&answer, 4).min(TABLE_MAX);
    let names =
        device.query(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count], count, ETH_GSTRING_LEN)?;
    let blocks = count.div_ceil(u32::BITS);
    // Each block: available, requested, active, never changed.
    let answer = device.query(&[ETHTOOL_GFEATURES, blocks], blocks, 4 * size_of::<u32>())?;
    let bit =
        |set: usize, index: usize| word(&answer, 2 + index / 32 * 4 + set) >> (index % 32) & 1 == 1;
    let named = items(&names, 3, count, ETH_GSTRING_LEN).map(name).enumerate();
    let feature = |(index, name): (usize, String)| {
        let changeable = bit(0, index) && !bit(3, index);
        Feature { name, on: bit(2, index), changeable }
    };
    Ok(named.filter(|(_, name)| !name.is_empty()).map(feature).collect())
}

/// Returns the distribution of packets over the receive queues.
pub fn rss_table(interface: &str) -> Result<RssTable, EthtoolError> {
    let device = EthtoolDevice::open(interface, "read the RSS table")?;
    // struct ethtool_rxnfc up to its data, which contains the number of queues.
    let mut request = [0; 4];
    request[0] = ETHTOOL_GRXRINGS;
    let queues = word(&device.query(&request, 0, 0)?, 2);
    // struct ethtool_rxfh: command, context, entries, bytes of the key, function, two reserved.
    let mut request = [0; 7];
    request[0] = ETHTOOL_GRSSH;
    let sizes = device.query(&request, 0, 0)?;
    let (entries, key_bytes) = (word(&sizes, 2).min(TABLE_MAX), word(&sizes, 3).min(TABLE_MAX));
    (request[2], request[3]) = (entries, key_bytes);
    let key_words = key_bytes.div_ceil(4);
    let answer = device.query(&request, entries + key_words, size_of::<u32>())?;
    let table = (0..entries as usize).map(|entry| word(&answer, 7 + entry)).collect();
    Ok(RssTable { queues, table, key_bytes })
}

/// Returns the negotiated speed of the link.
pub fn speed(interface: &str) -> Result<LinkSpeed, EthtoolError> {
    let device = EthtoolDevice::open(interface, "read the speed")?;
    let mut request = [0; SETTINGS_WORDS];
    request[0] = ETHTOOL_GSET;
    let answer = device.query(&request, 0, 0)?;
    // struct ethtool_cmd: the low half of the speed after three words, then the duplex; the high
    // half after four more.
    let half = |at: usize| {
        let bytes = answer.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        u32::from(u16::from_ne_bytes(bytes.unwrap_or_default()))
    };
    let mbit_s = half(12) | half(28) << 16;
    let duplex = answer.get(14).copied();
    Ok(LinkSpeed {
        // Some drivers write the low half alone.
        mbit_s: (mbit_s != SPEED_UNKNOWN && mbit_s != 0xffff && mbit_s != 0).then_some(mbit_s),
        full_duplex: match duplex {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
    })
}

/// Returns the timestamps that the driver and the kernel take.
pub fn stamping(interface: &str) -> Result<TimestampBits, EthtoolError> {
    let device = EthtoolDevice::open(interface, "read the timestamping capabilities")?;
    let mut request = [0; 11];
    request[0] = ETHTOOL_GET_TS_INFO;
    let answer = device.query(&request, 0, 0)?;
    Ok(TimestampBits {
        kinds: word(&answer, 1),
        clock: u32::try_from(word(&answer, 2).cast_signed()).ok(),
        transmit_types: word(&answer, 3),
        receive_filters: word(&answer, 7),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_reports_its_features_and_lacks_hardware_settings() {
        let features = features("lo").unwrap();
        let of = |name: &str| features.iter().find(|feature| feature.name == name).unwrap();
        assert!(of("loopback").on && !of("loopback").changeable);
        assert!(of("tx-checksum-ip-generic").on || of("highdma").on);
        assert!(matches!(rings("lo"), Err(EthtoolError::Unsupported { .. })));
        assert!(matches!(coalescing("lo"), Err(EthtoolError::Unsupported { .. })));
        assert!(rss_table("lo").is_err() && speed("lo").is_err());
        assert_eq!(stamping("lo").unwrap().clock, None);
    }

    #[test]
    fn a_missing_interface_is_named() {
        for interface in ["no-such-if", "", "far-too-long-for-a-name"] {
            let error = features(interface).unwrap_err();
            assert!(matches!(error, EthtoolError::NoSuchInterface(_)), "{error}");
        }
    }
}
