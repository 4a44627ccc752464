//! What is configured of a clock and of its ports, and what a profile makes of it (IEEE 1588-2019,
//! clause 20.3 and annex I; ITU-T G.8275.2).

use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::PortIdentity;

/// What one port speaks over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// UDP and IPv4 (annex C).
    Udp4,
    /// UDP and IPv6 (annex D).
    Udp6,
    /// Ethernet and nothing else (annex E).
    Ethernet,
}

impl Transport {
    /// Its number in messages (table 3).
    #[must_use]
    pub const fn protocol(self) -> u16 {
        match self {
            Self::Udp4 => 1,
            Self::Udp6 => 2,
            Self::Ethernet => 3,
        }
    }
}

/// How clients measure the delay to their master (table 21).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DelayMechanism {
    /// By asking the master: `Delay_Req`.
    EndToEnd,
    /// By asking the neighbour: `Pdelay_Req`.
    PeerToPeer,
}

impl DelayMechanism {
    /// Its number in messages.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::EndToEnd => 1,
            Self::PeerToPeer => 2,
        }
    }
}

/// A set of choices that clocks have to share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Profile {
    /// The default profile whose clients ask the master for the delay (annex I.3).
    DefaultE2e,
    /// The default profile whose clients ask their neighbours (annex I.4).
    DefaultP2p,
    /// ITU-T G.8275.2, telecommunication networks without support on the path: unicast only.
    G8275_2,
}

/// A profile that is not there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "profile '{0}' is not there; there are: default-e2e, default-p2p, g8275.2 (not g8275.1, power \
     or 802.1as)"
)]
pub struct UnknownProfile(pub String);

impl std::str::FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}

impl Profile {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::DefaultE2e, Self::DefaultP2p, Self::G8275_2];

    /// Its name in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DefaultE2e => "default-e2e",
            Self::DefaultP2p => "default-p2p",
            Self::G8275_2 => "g8275.2",
        }
    }

    /// Its identity in messages (annexes I.3.1 and I.4.1; G.8275.2, annex A.1).
    #[must_use]
    pub const fn identity(self) -> [u8; 6] {
        match self {
            Self::DefaultE2e => [0x00, 0x1b, 0x19, 0x00, 0x01, 0x00],
            Self::DefaultP2p => [0x00, 0x1b, 0x19, 0x00, 0x02, 0x00],
            Self::G8275_2 => [0x00, 0x19, 0xa7, 0x02, 0x01, 0x00],
        }
    }

    /// The domain where none is given.
    #[must_use]
    pub const fn default_domain(self) -> u8 {
        match self {
            Self::DefaultE2e | Self::DefaultP2p => 0,
            Self::G8275_2 => 44,
        }
    }

    /// The domains that it allows.
    #[must_use]
    pub const fn domains(self) -> std::ops::RangeInclusive<u8> {
        match self {
            Self::DefaultE2e | Self::DefaultP2p => 0..=127,
            Self::G8275_2 => 44..=63,
        }
    }

    /// How its clients measure the delay.
    #[must_use]
    pub const fn delay(self) -> DelayMechanism {
        match self {
            Self::DefaultE2e | Self::G8275_2 => DelayMechanism::EndToEnd,
            Self::DefaultP2p => DelayMechanism::PeerToPeer,
        }
    }

    /// Whether its ports speak to a group; where not, clients ask for what they want.
    #[must_use]
    pub const fn multicast(self) -> bool {
        !matches!(self, Self::G8275_2)
    }

    /// A port with this number as the profile has it: intervals, timeouts, and bounds of what is
    /// granted.
    #[must_use]
    pub const fn port(self, number: u16, transport: Transport, mac: MacAddress) -> PortSettings {
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
            unicast: UnicastSettings::DEFAULT,
            address: Vec::new(),
            mac,
        }
    }
}

/// What all ports of a clock share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockSettings {
    /// Which clock it is.
    pub identity: u64,
    /// The domain.
    pub domain: u8,
    /// Whose profile it keeps to, 12 bits: 0 for all that are here.
    pub sdo_id: u16,
    /// Its first rank, lower first.
    pub priority1: u8,
    /// Its second rank, among clocks of the same quality.
    pub priority2: u8,
    /// The profile.
    pub profile: Profile,
    /// How many ports it has.
    pub ports: u16,
    /// What its owner calls it, for those who ask by management.
    pub user: String,
}

impl ClockSettings {
    /// A clock with the ranks and the domain that the profile has by default, and one port.
    #[must_use]
    pub const fn new(identity: u64, profile: Profile) -> Self {
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

/// What is configured of a port.
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// Its number, from 1.
    pub number: u16,
    /// What it speaks over.
    pub transport: Transport,
    /// How its clients measure the delay.
    pub delay: DelayMechanism,
    /// The interval of Announce, log2 of seconds.
    pub log_announce: i8,
    /// The interval of Sync, log2 of seconds.
    pub log_sync: i8,
    /// The least interval that clients leave between `Delay_Req`, log2 of seconds.
    pub log_min_delay_req: i8,
    /// After how many intervals without an Announce a master is gone.
    pub announce_receipt_timeout: u8,
    /// Whether it speaks to the group and hears what others say there.
    pub multicast: bool,
    /// Whether a `Delay_Req` to its own address is answered without having been granted.
    pub hybrid: bool,
    /// The card writes the time into a Sync as it leaves.
    pub one_step: bool,
    /// Whether NetSync Monitor is answered.
    pub monitor: bool,
    /// Bounds of what is granted.
    pub unicast: UnicastSettings,
    /// Its protocol address, for those who ask.
    pub address: Vec<u8>,
    /// Its address on the link.
    pub mac: MacAddress,
}

impl PortSettings {
    /// Which port of a clock it is.
    #[must_use]
    pub const fn identity(&self, clock: &ClockSettings) -> PortIdentity {
        PortIdentity { clock: clock.identity, port: self.number }
    }
}

/// Bounds of what a port grants (clause 16.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnicastSettings {
    /// How many grants there are at most; one is for one kind of messages to one client.
    pub grants_max: usize,
    /// How many messages a second all of them may add up to.
    pub rate_max: u32,
    /// For how many seconds one may be.
    pub duration_max_s: u32,
    /// The shortest interval of messages, log2 of seconds.
    pub log_interval_min: i8,
}

impl UnicastSettings {
    /// 512 clients with 64 Syncs and questions a second each; intervals and durations of G.8275.2
    /// (table A.5).
    pub const DEFAULT: Self =
        Self { grants_max: 4096, rate_max: 65_536, duration_max_s: 1000, log_interval_min: -7 };
}
