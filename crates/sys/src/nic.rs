//! NIC settings beyond [`crate::ethtool`], read only: ring sizes, interrupt coalescing, offloads,
//! receive-side scaling, link speed. Interfaces are looked up in the calling thread's network
//! namespace. The structures are those of `linux/ethtool.h`.

use crate::ethtool::{EthtoolError, EthtoolSocket, items, name, word};

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
/// String set with the names of the features.
const ETH_SS_FEATURES: u32 = 4;
/// Length of one name, padding included.
const ETH_GSTRING_LEN: usize = 32;
/// Largest accepted size of an RSS table, far above that of any driver.
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
pub struct DriverInfo {
    /// Driver name, such as `ixgbe` or `veth`.
    pub name: String,
    /// Firmware of the NIC; empty if not reported.
    pub firmware: String,
    /// Bus address of the device, such as `0000:03:00.0`; empty if it has none.
    pub bus: String,
}

/// Sizes of the receive and transmit rings, in descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSizes {
    /// Descriptors of the receive ring.
    pub rx: u32,
    /// Descriptors of the transmit ring.
    pub tx: u32,
    /// Largest size of the receive ring.
    pub rx_max: u32,
    /// Largest size of the transmit ring.
    pub tx_max: u32,
}

/// Interrupt coalescing settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// Delay of the interrupt after a received packet, in µs.
    pub rx_us: u32,
    /// Received packets that cause an interrupt.
    pub rx_frames: u32,
    /// Delay of the interrupt after a sent packet, in µs.
    pub tx_us: u32,
    /// Sent packets that cause an interrupt.
    pub tx_frames: u32,
    /// True if the driver adapts the receive settings to the load.
    pub adaptive_rx: bool,
    /// True if the driver adapts the transmit settings to the load.
    pub adaptive_tx: bool,
}

/// Offload or other feature of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicFeature {
    /// Kernel name of the feature, such as `rx-gro`.
    pub name: String,
    /// True if the feature is enabled.
    pub on: bool,
    /// True if the feature can be changed.
    pub changeable: bool,
}

/// Receive-side scaling (RSS): distribution of received packets over queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RssTable {
    /// Number of queues that RSS can use.
    pub queues: u32,
    /// Indirection table: the queue for each entry, which the hash of a packet selects.
    pub table: Vec<u32>,
    /// Length of the hash key, in bytes.
    pub key_bytes: u32,
}

/// Negotiated speed of an interface's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Speed in Mbit/s; `None` if unknown.
    pub mbit_s: Option<u32>,
    /// True for full duplex, false for half duplex; `None` if unknown.
    pub full_duplex: Option<bool>,
}

/// Timestamping capabilities as the bit masks of `struct ethtool_ts_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampCapabilityBits {
    /// Mask of `SOF_TIMESTAMPING_*` flags.
    pub kinds: u32,
    /// Number N of the PTP hardware clock `/dev/ptpN`; `None` without one.
    pub clock: Option<u32>,
    /// Supported transmit modes: bits numbered by `HWTSTAMP_TX_*`.
    pub transmit_types: u32,
    /// Supported receive filters: bits numbered by `HWTSTAMP_FILTER_*`.
    pub receive_filters: u32,
}

/// Returns the driver of the interface.
pub fn driver(interface: &str) -> Result<DriverInfo, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the driver")?;
    let mut request = vec![0; DRIVER_BYTES / size_of::<u32>()];
    request[0] = ETHTOOL_GDRVINFO;
    let answer = device.query(&request, 0, 0)?;
    // After the command: driver, version, firmware and bus, 32 bytes each.
    let text = |index: usize| {
        let start = size_of::<u32>() + index * ETH_GSTRING_LEN;
        name(answer.get(start..start + ETH_GSTRING_LEN).unwrap_or_default())
    };
    // Placeholders that drivers write if they have no firmware or bus.
    let value_or_empty = |text: String| if text == "N/A" { String::new() } else { text };
    Ok(DriverInfo {
        name: text(0),
        firmware: value_or_empty(text(2)),
        bus: value_or_empty(text(3)),
    })
}

/// Returns the ring sizes.
pub fn rings(interface: &str) -> Result<RingSizes, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the rings")?;
    let mut request = [0; RING_WORDS];
    request[0] = ETHTOOL_GRINGPARAM;
    let answer = device.query(&request, 0, 0)?;
    // Largest rx, mini, jumbo and tx; then the same four in use.
    let at = |index| word(&answer, index);
    Ok(RingSizes { rx_max: at(1), tx_max: at(4), rx: at(5), tx: at(8) })
}

/// Returns the interrupt coalescing settings.
pub fn coalescing(interface: &str) -> Result<InterruptCoalescing, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the coalescing settings")?;
    let mut request = [0; COALESCE_WORDS];
    request[0] = ETHTOOL_GCOALESCE;
    let answer = device.query(&request, 0, 0)?;
    let at = |index| word(&answer, index);
    Ok(InterruptCoalescing {
        rx_us: at(1),
        rx_frames: at(2),
        tx_us: at(5),
        tx_frames: at(6),
        adaptive_rx: at(10) != 0,
        adaptive_tx: at(11) != 0,
    })
}

/// Returns the features of the interface, in the kernel's order.
pub fn features(interface: &str) -> Result<Vec<NicFeature>, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the features")?;
    let [low, high] = crate::ethtool::to_words(1 << ETH_SS_FEATURES);
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
        NicFeature { name, on: bit(2, index), changeable }
    };
    Ok(named.filter(|(_, name)| !name.is_empty()).map(feature).collect())
}

/// Returns the RSS settings of the interface.
pub fn rss_table(interface: &str) -> Result<RssTable, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the RSS table")?;
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
    let device = EthtoolSocket::open(interface, "read the speed")?;
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

/// Returns the timestamping capabilities of driver and kernel.
pub fn timestamp_capability_bits(interface: &str) -> Result<TimestampCapabilityBits, EthtoolError> {
    let device = EthtoolSocket::open(interface, "read the timestamping capabilities")?;
    let mut request = [0; 11];
    request[0] = ETHTOOL_GET_TS_INFO;
    let answer = device.query(&request, 0, 0)?;
    Ok(TimestampCapabilityBits {
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
        assert_eq!(timestamp_capability_bits("lo").unwrap().clock, None);
    }

    #[test]
    fn a_missing_interface_is_named() {
        for interface in ["no-such-if", "", "far-too-long-for-a-name"] {
            let error = features(interface).unwrap_err();
            assert!(matches!(error, EthtoolError::NoSuchInterface(_)), "{error}");
        }
    }
}
