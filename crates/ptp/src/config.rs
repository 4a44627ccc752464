//! Options for PTP, and their rules.

use std::ops::RangeInclusive;

use horolog_wire::ethernet::MacAddress;
use horolog_wire::prefix::Prefix;

use crate::settings::{
    ClockSettings, PortSettings, PtpPortTransport, PtpProfile, UnicastGrantLimits,
};

/// Range of message intervals, in log2 seconds: from 128 per second to one in 16 s.
const PTP_LOG_INTERVALS: RangeInclusive<i8> = -7..=4;
/// Highest permitted value of [`PtpConfig::unicast_grants`].
const PTP_GRANTS_MAX: usize = 1 << 16;
/// Highest permitted value of [`PtpConfig::unicast_rate`], in messages per second.
const PTP_RATE_MAX: u32 = 10_000_000;

/// Options for PTP: interfaces, transports, profile and the values that replace its defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PtpConfig {
    /// Interfaces on which PTP is served; if empty, PTP is off.
    pub interfaces: Vec<String>,
    /// Transports of PTP, each with one port on every interface.
    pub transports: Vec<PtpPortTransport>,
    /// Profile, which supplies the defaults.
    pub profile: PtpProfile,
    /// Domain number; by default that of the profile.
    pub domain: Option<u8>,
    /// Priority1: ranks clocks before all other data; lower values win.
    pub priority1: u8,
    /// Priority2: ranks clocks of equal quality; lower values win.
    pub priority2: u8,
    /// Clock class; by default derived from the source. While TAI is unknown, at least 13.
    pub clock_class: Option<u8>,
    /// Interval of Announce messages, in log2 seconds; by default that of the profile.
    pub log_announce: Option<i8>,
    /// Interval of Sync messages, in log2 seconds; by default that of the profile.
    pub log_sync: Option<i8>,
    /// Minimum interval between a client's `Delay_Req` messages, in log2 seconds; by default that
    /// of the profile.
    pub log_delay_req: Option<i8>,
    /// True for one-step operation: the NIC writes the transmit time into Sync messages.
    pub one_step: bool,
    /// True to answer NetSync Monitor requests.
    pub monitor: bool,
    /// Maximum number of simultaneous unicast grants of a port, each for one client and type of
    /// message; 0 disables them.
    pub unicast_grants: usize,
    /// Maximum rate granted to all clients of a port together, in messages per second; a Sync
    /// counts twice.
    pub unicast_rate: u32,
    /// Prefixes of clients that may get grants; if empty, the networks of the interface.
    pub unicast_allow: Vec<Prefix>,
}

impl Default for PtpConfig {
    /// Uses no interface; IPv4 and the default profile.
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            transports: vec![PtpPortTransport::Udp4],
            profile: PtpProfile::DefaultE2e,
            domain: None,
            priority1: 128,
            priority2: 128,
            clock_class: None,
            log_announce: None,
            log_sync: None,
            log_delay_req: None,
            one_step: false,
            monitor: false,
            unicast_grants: UnicastGrantLimits::DEFAULT.grants_max,
            unicast_rate: UnicastGrantLimits::DEFAULT.rate_max,
            unicast_allow: Vec::new(),
        }
    }
}

/// Violation of a rule of the PTP options; its text is one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PtpConfigError {
    /// Duplicate interface or transport.
    #[error("{0} is specified twice; omit one")]
    Duplicate(String),
    /// Domain that is not in the profile.
    #[error("--ptp-domain {0}: the profile {1} has domains {2} to {3}")]
    Domain(u8, &'static str, u8, u8),
    /// Transport that is not in the profile.
    #[error(
        "--ptp-transport {0}: the profile {1} supports UDP only; use --ptp-transport udp4 or udp6, \
         or another --ptp-profile"
    )]
    Transport(&'static str, &'static str),
    /// Message interval that is out of range.
    #[error("{0} {1}: an interval is from -7 (128 a second) to 4 (one in 16 s)")]
    Interval(&'static str, i8),
    /// Clock class that a grandmaster cannot have.
    #[error("--ptp-clock-class {0}: a grandmaster's class is 6 to 254 (IEEE 1588-2019, table 4)")]
    ClockClass(u8),
    /// Too many grants.
    #[error("--ptp-unicast-grants {0}: at most {PTP_GRANTS_MAX}")]
    Grants(usize),
    /// Unicast rate that is out of range.
    #[error("--ptp-unicast-rate {0}: from 1 to {PTP_RATE_MAX}")]
    Rate(u32),
    /// One-step operation without hardware timestamps, which it requires.
    #[error(
        "--ptp-one-step on '{0}' needs timestamps of its NIC: add --timestamps {0}=hardware, or \
         omit it for two-step"
    )]
    OneStep(String),
}

impl PtpPortTransport {
    /// Returns the name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
            Self::Ethernet => "l2",
        }
    }
}

impl PtpConfig {
    /// Returns true if PTP is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// Returns the domain, by default the profile's.
    #[must_use]
    pub fn domain(&self) -> u8 {
        self.domain.unwrap_or(self.profile.default_domain())
    }

    /// Returns the settings of a clock with this identity and number of ports.
    pub(crate) fn clock(&self, identity: u64, ports: u16) -> ClockSettings {
        ClockSettings {
            domain: self.domain(),
            priority1: self.priority1,
            priority2: self.priority2,
            ports,
            ..ClockSettings::new(identity, self.profile)
        }
    }

    /// Returns the settings of the port with this number, transport and MAC address: those of the
    /// profile, with the configured values.
    pub(crate) fn port(
        &self,
        number: u16,
        transport: PtpPortTransport,
        mac: MacAddress,
    ) -> PortSettings {
        let profiles = self.profile.port(number, transport, mac);
        PortSettings {
            log_announce: self.log_announce.unwrap_or(profiles.log_announce),
            log_sync: self.log_sync.unwrap_or(profiles.log_sync),
            log_min_delay_req: self.log_delay_req.unwrap_or(profiles.log_min_delay_req),
            one_step: self.one_step,
            monitor: self.monitor,
            unicast: UnicastGrantLimits {
                grants_max: self.unicast_grants,
                rate_max: self.unicast_rate,
                ..profiles.unicast
            },
            ..profiles
        }
    }

    /// Returns the first rule that the options break. `hardware` lists the interfaces with hardware
    /// timestamps.
    pub fn check(&self, hardware: &[String]) -> Result<(), PtpConfigError> {
        if let Some(twice) = first_duplicate(&self.interfaces) {
            return Err(PtpConfigError::Duplicate(format!("--ptp {twice}")));
        }
        if let Some(twice) = first_duplicate(&self.transports) {
            return Err(PtpConfigError::Duplicate(format!("--ptp-transport {}", twice.name())));
        }
        let domains = self.profile.domains();
        if !domains.contains(&self.domain()) {
            let (first, last) = (*domains.start(), *domains.end());
            let name = self.profile.name();
            return Err(PtpConfigError::Domain(self.domain(), name, first, last));
        }
        // ITU-T G.8275.2 maps PTP to UDP over IPv4 and IPv6 only.
        if self.profile == PtpProfile::G8275_2
            && self.transports.contains(&PtpPortTransport::Ethernet)
        {
            let (transport, profile) = (PtpPortTransport::Ethernet.name(), self.profile.name());
            return Err(PtpConfigError::Transport(transport, profile));
        }
        for (flag, interval) in [
            ("--ptp-announce-interval", self.log_announce),
            ("--ptp-sync-interval", self.log_sync),
            ("--ptp-delay-interval", self.log_delay_req),
        ] {
            if let Some(interval) = interval.filter(|log| !PTP_LOG_INTERVALS.contains(log)) {
                return Err(PtpConfigError::Interval(flag, interval));
            }
        }
        if let Some(class) = self.clock_class.filter(|class| !(6..=254).contains(class)) {
            return Err(PtpConfigError::ClockClass(class));
        }
        if self.unicast_grants > PTP_GRANTS_MAX {
            return Err(PtpConfigError::Grants(self.unicast_grants));
        }
        if !(1..=PTP_RATE_MAX).contains(&self.unicast_rate) {
            return Err(PtpConfigError::Rate(self.unicast_rate));
        }
        let plain = self.interfaces.iter().find(|name| !hardware.contains(name));
        match plain {
            Some(name) if self.one_step => Err(PtpConfigError::OneStep(name.clone())),
            _ => Ok(()),
        }
    }
}

fn first_duplicate<T: PartialEq>(all: &[T]) -> Option<&T> {
    all.iter().enumerate().find(|(index, one)| all[..*index].contains(one)).map(|(_, one)| one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut PtpConfig)) -> Result<(), PtpConfigError> {
        let mut config = PtpConfig { interfaces: vec!["eth0".into()], ..PtpConfig::default() };
        change(&mut config);
        config.check(&["eth1".into()])
    }

    #[test]
    fn the_default_is_valid_and_each_rule_is_enforced() {
        assert_eq!(check(|_| ()), Ok(()));
        let twice = |c: &mut PtpConfig| c.interfaces.push("eth0".into());
        assert_eq!(check(twice), Err(PtpConfigError::Duplicate("--ptp eth0".into())));
        assert!(check(|c| c.transports.push(PtpPortTransport::Udp4)).is_err());
        assert!(check(|c| c.domain = Some(240)).is_err());
        assert!(check(|c| c.log_sync = Some(-8)).is_err());
        assert!(check(|c| c.log_announce = Some(5)).is_err());
        assert_eq!(check(|c| c.clock_class = Some(255)), Err(PtpConfigError::ClockClass(255)));
        assert!(check(|c| c.clock_class = Some(5)).is_err());
        assert!(check(|c| c.unicast_grants = PTP_GRANTS_MAX + 1).is_err());
        assert!(check(|c| c.unicast_rate = 0).is_err());
        assert_eq!(check(|c| c.one_step = true), Err(PtpConfigError::OneStep("eth0".into())));
        let with_phc = |c: &mut PtpConfig| (c.one_step, c.interfaces) = (true, vec!["eth1".into()]);
        assert_eq!(check(with_phc), Ok(()));
    }

    #[test]
    fn a_profile_has_its_domains() {
        let telecom = |domain| check(|c| (c.profile, c.domain) = (PtpProfile::G8275_2, domain));
        assert_eq!(telecom(None), Ok(()));
        assert_eq!(telecom(Some(63)), Ok(()));
        let over = |transport| {
            check(|c| (c.profile, c.transports) = (PtpProfile::G8275_2, vec![transport]))
        };
        assert_eq!(over(PtpPortTransport::Udp6), Ok(()));
        let message = over(PtpPortTransport::Ethernet).unwrap_err().to_string();
        assert!(message.starts_with("--ptp-transport l2: the profile g8275.2"), "{message}");
        let message = telecom(Some(0)).unwrap_err().to_string();
        assert!(message.ends_with("the profile g8275.2 has domains 44 to 63"), "{message}");
    }
}
