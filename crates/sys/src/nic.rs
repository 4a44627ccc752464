//! What a driver tells of a network card beyond [`crate::ethtool`]: rings, coalescing, offloads,
//! the spreading of packets over queues, speed. Asked through the ethtool ioctls, nothing is set.
//! Interfaces are looked up in the calling thread's network namespace. The structures are those of
//! `linux/ethtool.h`.

use crate::ethtool::{Device, EthtoolError, items, name, word};

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
/// Entries that a table of queues may have; the largest of any driver is a fraction.
const TABLE_MAX: u32 = 65_536;
/// Words of `struct ethtool_coalesce`, `struct ethtool_ringparam` and `struct ethtool_cmd`.
const COALESCE_WORDS: usize = 23;
const RING_WORDS: usize = 9;
const SETTINGS_WORDS: usize = 11;
/// `struct ethtool_drvinfo`.
const DRIVER_BYTES: usize = 196;
/// A speed that nobody knows.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// Which driver, and which device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// Its name, such as `ixgbe` or `veth`.
    pub name: String,
    /// The card's firmware; empty where it tells none.
    pub firmware: String,
    /// Where the device is, such as `0000:03:00.0`; empty where it is nowhere.
    pub bus: String,
}

/// Descriptors of the receive and transmit rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Received packets that wait at most.
    pub rx: u32,
    /// Packets to send that wait at most.
    pub tx: u32,
    /// The largest `rx`.
    pub rx_max: u32,
    /// The largest `tx`.
    pub tx_max: u32,
}

/// How long and how many packets an interrupt waits for.
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
    /// Whether the driver changes the first two by the load.
    pub adaptive_rx: bool,
    /// Whether it changes the other two.
    pub adaptive_tx: bool,
}

/// An offload or another feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Its name in the kernel, such as `rx-gro`.
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether it can be changed.
    pub changeable: bool,
}

/// How received packets are spread over queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spreading {
    /// Queues that can take part.
    pub queues: u32,
    /// The queue of each entry of the table; a packet's hash chooses the entry.
    pub table: Vec<u32>,
    /// Bytes of the hash's key.
    pub key_bytes: u32,
}

/// What an interface's link negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Megabits per second; `None` where nobody knows.
    pub mbit_s: Option<u32>,
    /// Whether both directions work at once; `None` where nobody knows.
    pub full_duplex: Option<bool>,
}

/// Which timestamps there are: bits by `SOF_TIMESTAMPING_*`, `HWTSTAMP_TX_*`, `HWTSTAMP_FILTER_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamping {
    /// Who takes them.
    pub kinds: u32,
    /// The number N of the card's clock `/dev/ptpN`.
    pub clock: Option<u32>,
    /// Of what is sent.
    pub transmit_types: u32,
    /// Of what is received.
    pub receive_filters: u32,
}

/// Which driver the interface has.
pub fn driver(interface: &str) -> Result<Driver, EthtoolError> {
    let device = Device::open(interface, "tell its driver")?;
    let mut request = vec![0; DRIVER_BYTES / size_of::<u32>()];
    request[0] = ETHTOOL_GDRVINFO;
    let answer = device.ask(&request, 0, 0)?;
    // Behind the command: driver, version, firmware and bus, 32 bytes each.
    let text = |place: usize| {
        let start = size_of::<u32>() + place * ETH_GSTRING_LEN;
        name(answer.get(start..start + ETH_GSTRING_LEN).unwrap_or_default())
    };
    // Drivers that have no firmware or bus write one of these.
    let told = |text: String| if text == "N/A" { String::new() } else { text };
    Ok(Driver { name: text(0), firmware: told(text(2)), bus: told(text(3)) })
}

/// How many packets wait at most.
pub fn rings(interface: &str) -> Result<Rings, EthtoolError> {
    let device = Device::open(interface, "tell its rings")?;
    let mut request = [0; RING_WORDS];
    request[0] = ETHTOOL_GRINGPARAM;
    let answer = device.ask(&request, 0, 0)?;
    // At most rx, mini, jumbo, tx; then those in use.
    let at = |place| word(&answer, place);
    Ok(Rings { rx_max: at(1), tx_max: at(4), rx: at(5), tx: at(8) })
}

/// How long interrupts wait.
pub fn coalescing(interface: &str) -> Result<Coalescing, EthtoolError> {
    let device = Device::open(interface, "tell its coalescing")?;
    let mut request = [0; COALESCE_WORDS];
    request[0] = ETHTOOL_GCOALESCE;
    let answer = device.ask(&request, 0, 0)?;
    let at = |place| word(&answer, place);
    Ok(Coalescing {
        rx_us: at(1),
        rx_frames: at(2),
        tx_us: at(5),
        tx_frames: at(6),
        adaptive_rx: at(10) != 0,
        adaptive_tx: at(11) != 0,
    })
}

/// The features of an interface, in the kernel's order.
pub fn features(interface: &str) -> Result<Vec<Feature>, EthtoolError> {
    let device = Device::open(interface, "tell its features")?;
    let [low, high] = crate::ethtool::halves(1 << ETH_SS_FEATURES);
    let answer = device.ask(&[ETHTOOL_GSSET_INFO, 0, low, high], 1, size_of::<u32>())?;
    let count = word(&answer, 4).min(TABLE_MAX);
    let names = device.ask(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count], count, ETH_GSTRING_LEN)?;
    let blocks = count.div_ceil(u32::BITS);
    // Each block: available, requested, active, never changed.
    let answer = device.ask(&[ETHTOOL_GFEATURES, blocks], blocks, 4 * size_of::<u32>())?;
    let bit =
        |set: usize, place: usize| word(&answer, 2 + place / 32 * 4 + set) >> (place % 32) & 1 == 1;
    let named = items(&names, 3, count, ETH_GSTRING_LEN).map(name).enumerate();
    let feature = |(place, name): (usize, String)| {
        let changeable = bit(0, place) && !bit(3, place);
        Feature { name, on: bit(2, place), changeable }
    };
    Ok(named.filter(|(_, name)| !name.is_empty()).map(feature).collect())
}

/// How packets are spread over the receive queues.
pub fn spreading(interface: &str) -> Result<Spreading, EthtoolError> {
    let device = Device::open(interface, "tell how it spreads packets (RSS)")?;
    // struct ethtool_rxnfc up to its data, which is where the number of queues stands.
    let mut request = [0; 4];
    request[0] = ETHTOOL_GRXRINGS;
    let queues = word(&device.ask(&request, 0, 0)?, 2);
    // struct ethtool_rxfh: command, context, entries, bytes of the key, function, two reserved.
    let mut request = [0; 7];
    request[0] = ETHTOOL_GRSSH;
    let sizes = device.ask(&request, 0, 0)?;
    let (entries, key_bytes) = (word(&sizes, 2).min(TABLE_MAX), word(&sizes, 3).min(TABLE_MAX));
    (request[2], request[3]) = (entries, key_bytes);
    let key_words = key_bytes.div_ceil(4);
    let answer = device.ask(&request, entries + key_words, size_of::<u32>())?;
    let table = (0..entries as usize).map(|entry| word(&answer, 7 + entry)).collect();
    Ok(Spreading { queues, table, key_bytes })
}

/// What the link negotiated.
pub fn speed(interface: &str) -> Result<LinkSpeed, EthtoolError> {
    let device = Device::open(interface, "tell its speed")?;
    let mut request = [0; SETTINGS_WORDS];
    request[0] = ETHTOOL_GSET;
    let answer = device.ask(&request, 0, 0)?;
    // struct ethtool_cmd: the low half of the speed behind three words, then the duplex; the high
    // half behind four more.
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

/// Which timestamps the driver and the kernel take.
pub fn stamping(interface: &str) -> Result<Stamping, EthtoolError> {
    let device = Device::open(interface, "tell its timestamps")?;
    let mut request = [0; 11];
    request[0] = ETHTOOL_GET_TS_INFO;
    let answer = device.ask(&request, 0, 0)?;
    Ok(Stamping {
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
    fn loopback_tells_what_it_is_and_what_it_has_not() {
        let features = features("lo").unwrap();
        let of = |name: &str| features.iter().find(|feature| feature.name == name).unwrap();
        assert!(of("loopback").on && !of("loopback").changeable);
        assert!(of("tx-checksum-ip-generic").on || of("highdma").on);
        assert!(matches!(rings("lo"), Err(EthtoolError::Unsupported { .. })));
        assert!(matches!(coalescing("lo"), Err(EthtoolError::Unsupported { .. })));
        assert!(spreading("lo").is_err() && speed("lo").is_err());
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
