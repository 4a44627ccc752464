//! Settings of a clock and its ports, and the profiles that supply their defaults (IEEE 1588-2019,
//! clause 20.3 and annex I; ITU-T G.8275.2).

use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::PortIdentity;

/// Transport of PTP messages of one port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PtpPortTransport {
    /// UDP over IPv4 (annex C).
    Udp4,
    /// UDP over IPv6 (annex D).
    Udp6,
    /// Ethernet without IP (annex E).
    Ethernet,
}

impl PtpPortTransport {
    /// Returns the network protocol code in messages (table 3).
    #[must_use]
    pub const fn protocol(self) -> u16 {
        match self {
            Self::Udp4 => 1,
            Self::Udp6 => 2,
            Self::Ethernet => 3,
        }
    }
}

/// Mechanism by which clients measure the delay to their master (table 21).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DelayMechanism {
    /// Request to the master: `Delay_Req`.
    EndToEnd,
    /// Request to the neighbour: `Pdelay_Req`.
    PeerToPeer,
}

impl DelayMechanism {
    /// Returns the code of the mechanism in messages (table 21).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::EndToEnd => 1,
            Self::PeerToPeer => 2,
        }
    }
}

/// PTP profile: defaults and permitted values that clocks share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PtpProfile {
    /// Default profile with end-to-end delay requests to the master (annex I.3).
    DefaultE2e,
    /// Default profile with peer-to-peer delay requests to neighbours (annex I.4).
    DefaultP2p,
    /// ITU-T G.8275.2, for networks without PTP support on the path: unicast only.
    G8275_2,
}

/// Error of parsing a name that is not that of a supported profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown profile '{0}'; choose default-e2e, default-p2p or g8275.2 (not g8275.1, power or \
     802.1as)"
)]
pub struct UnknownProfile(pub String);

impl std::str::FromStr for PtpProfile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}

impl PtpProfile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::DefaultE2e, Self::DefaultP2p, Self::G8275_2];

    /// Returns the name of the profile in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DefaultE2e => "default-e2e",
            Self::DefaultP2p => "default-p2p",
            Self::G8275_2 => "g8275.2",
        }
    }

    /// Returns the profile identifier in messages (annexes I.3.1 and I.4.1; G.8275.2, annex A.1).
    #[must_use]
    pub const fn identity(self) -> [u8; 6] {
        match self {
            Self::DefaultE2e => [0x00, 0x1b, 0x19, 0x00, 0x01, 0x00],
            Self::DefaultP2p => [0x00, 0x1b, 0x19, 0x00, 0x02, 0x00],
            Self::G8275_2 => [0x00, 0x19, 0xa7, 0x02, 0x01, 0x00],
        }
    }

    /// Returns the default domain of the profile.
    #[must_use]
    pub const fn default_domain(self) -> u8 {
        match self {
            Self::DefaultE2e | Self::DefaultP2p => 0,
            Self::G8275_2 => 44,
        }
    }

    /// Returns the domains that the profile permits.
    #[must_use]
    pub const fn domains(self) -> std::ops::RangeInclusive<u8> {
        match self {
            Self::DefaultE2e | Self::DefaultP2p => 0..=127,
            Self::G8275_2 => 44..=63,
        }
    }

    /// Returns the delay mechanism of the clients in the profile.
    #[must_use]
    pub const fn delay(self) -> DelayMechanism {
        match self {
            Self::DefaultE2e | Self::G8275_2 => DelayMechanism::EndToEnd,
            Self::DefaultP2p => DelayMechanism::PeerToPeer,
        }
    }

    /// Returns true if the ports of the profile use multicast; otherwise clients request unicast
    /// messages.
    #[must_use]
    pub const fn multicast(self) -> bool {
        !matches!(self, Self::G8275_2)
    }

    /// Returns the profile's settings of a port: message intervals, timeouts and limits of grants.
    #[must_use]
    pub const fn port(
        self,
        number: u16,
        transport: PtpPortTransport,
        mac: MacAddress,
    ) -> PortSettings {
        PortSettings {
            number,
            transport,
            delay: self.delay(),
            log_announce: if self.multicast() { 1 } else { 0 },
            log_sync: 0,
            log_min_delay_req: 0,
            announce_receipt_timeout: if self.multicast() { 3 } else { 2 },
            multicast: self.multicast(),
            hybrid: self.multicast(),
            one_step: false,
            monitor: true,
            unicast: UnicastGrantLimits::DEFAULT,
            address: Vec::new(),
            mac,
        }
    }
}

/// Settings common to all ports of a clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockSettings {
    /// Clock identity, eight bytes (EUI-64).
    pub identity: u64,
    /// Domain number.
    pub domain: u8,
    /// `SdoId` of its profile, 12 bits: 0 for all profiles supported here.
    pub sdo_id: u16,
    /// Priority1: ranks clocks before all other data; lower values win.
    pub priority1: u8,
    /// Priority2: ranks clocks of equal quality; lower values win.
    pub priority2: u8,
    /// Profile of the clock.
    pub profile: PtpProfile,
    /// Number of ports.
    pub ports: u16,
    /// User description, for management messages.
    pub user: String,
}

impl ClockSettings {
    /// Creates the settings of a clock with one port, and the profile's default domain and
    /// priorities.
    #[must_use]
    pub const fn new(identity: u64, profile: PtpProfile) -> Self {
        Self {
            identity,
            domain: profile.default_domain(),
            sdo_id: 0,
            priority1: 128,
            priority2: 128,
            profile,
            ports: 1,
            user: String::new(),
        }
    }
}

/// Settings of a PTP port: its identity on the network, message intervals, modes and limits.
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// Port number, from 1.
    pub number: u16,
    /// Transport of the port.
    pub transport: PtpPortTransport,
    /// Delay mechanism of its clients.
    pub delay: DelayMechanism,
    /// Interval of Announce messages, in log2 seconds.
    pub log_announce: i8,
    /// Interval of Sync messages, in log2 seconds.
    pub log_sync: i8,
    /// Minimum interval between a client's `Delay_Req` messages, in log2 seconds.
    pub log_min_delay_req: i8,
    /// Number of Announce intervals without an Announce after which a master times out.
    pub announce_receipt_timeout: u8,
    /// True if the port sends to the multicast group and processes messages to it.
    pub multicast: bool,
    /// True if a unicast `Delay_Req` is answered without a grant.
    pub hybrid: bool,
    /// True for one-step operation: the NIC writes the transmit time into Sync messages.
    pub one_step: bool,
    /// True to answer NetSync Monitor requests.
    pub monitor: bool,
    /// Limits of unicast grants.
    pub unicast: UnicastGrantLimits,
    /// Protocol address in network byte order, for messages; only the first 16 bytes are used.
    pub address: Vec<u8>,
    /// MAC address of the interface.
    pub mac: MacAddress,
}

impl PortSettings {
    /// Returns the identity of the port at a clock.
    #[must_use]
    pub const fn identity(&self, clock: &ClockSettings) -> PortIdentity {
        PortIdentity { clock: clock.identity, port: self.number }
    }
}

/// Limits of a port's unicast grants (clause 16.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnicastGrantLimits {
    /// Maximum number of grants, each for one client and type of message.
    pub grants_max: usize,
    /// Maximum total rate, in messages per second; a Sync counts twice because of its `Follow_Up`.
    pub rate_max: u32,
    /// Maximum duration of a grant, in seconds.
    pub duration_max_s: u32,
    /// Shortest message interval that is granted, in log2 seconds.
    pub log_interval_min: i8,
}

impl UnicastGrantLimits {
    /// Default limits: 4,096 grants and 65,536 messages per second, such as 512 clients with 64
    /// Sync messages per second each, which count twice. Intervals and durations are those of
    /// G.8275.2 (table A.5).
    pub const DEFAULT: Self =
        Self { grants_max: 4096, rate_max: 65_536, duration_max_s: 1000, log_interval_min: -7 };
}
