//! Configuration of a server: the values of all options, and the rules for them. No command line is
//! parsed and nothing on the host is queried.

mod error;
mod leap;
mod limits;
mod nts;
mod operation;
mod source;
mod timestamps;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use horolog_ptp::PtpConfig;
use horolog_source::CalibrationConfig;
use horolog_time::{NS_PER_S, Span};
use horolog_wire::ntp::{LeapIndicator, PORT};

pub use error::ConfigError;
pub use leap::{LeapConfig, SMEARS, SystemLeapBehaviour};
pub use limits::LimitsConfig;
pub use nts::{NtsConfig, NtsConfigError};
pub use operation::{MetricsAndPrivilegesConfig, SandboxMode, ServerLivePageConfig};
pub use source::{PlausibilityConfig, SourceConfig};
pub use timestamps::{
    InterleavedConfig, InterleavedEngineSelection, TimestampsConfig, TimestampsConfigError,
};

/// Range of the strata that a server may announce (RFC 5905, figure 11).
pub const STRATA: RangeInclusive<u8> = 1..=15;
/// Default stratum, because the kernel does not report its own. A high stratum is harmless, whereas
/// one that is too low attracts clients of better servers.
pub const DEFAULT_STRATUM: u8 = 10;
/// Interval between page updates.
pub const PAGE_UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// Range of the life of a clock page. The lower limit permits one late page update; the upper limit
/// is within the range of [`horolog_time::Timebase::ntp_at`].
pub const PAGE_LIVES: RangeInclusive<Duration> =
    Duration::from_millis(200)..=Duration::from_secs(2);
/// Largest test drift: 10%, more than that of any oscillator.
pub const DRIFT_MAX_PPB: u64 = 100_000_000;
/// Largest test offset: half an NTP era, because larger offsets are equivalent to smaller ones
/// modulo 136 years.
pub const OFFSET_MAX: Span = Span::from_ns((1 << 31) * NS_PER_S);
/// Maximum number of socket threads per listen address.
pub const THREADS_MAX: usize = 4_096;

/// Sharing of the socket engine's sockets among its threads, which distributes the work.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SocketSharingMode {
    /// One socket per thread on a shared port; threads are pinned to cores and process packets in
    /// batches.
    #[default]
    PerThread,
    /// One socket for all threads, with one lock for receiving and one for sending; threads process
    /// one packet at a time.
    SharedLock,
}

impl SocketSharingMode {
    /// Returns the name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerThread => "per-thread",
            Self::SharedLock => "shared-lock",
        }
    }
}

/// Engines that answer requests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum EngineSelection {
    /// XDP on interfaces that support native mode, and sockets for the rest.
    #[default]
    Auto,
    /// Sockets only.
    Socket,
    /// XDP, and sockets for the packets that XDP passes. The server does not start without XDP.
    Xdp,
}

impl EngineSelection {
    /// Returns the name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Socket => "socket",
            Self::Xdp => "xdp",
        }
    }
}

/// Method by which the XDP engine transmits replies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum XdpTransmitMethod {
    /// Redirect on virtual links (veth), `XDP_TX` on all others.
    #[default]
    Auto,
    /// `XDP_TX`, the fastest. On a veth link the replies arrive only if the other end runs an XDP
    /// program.
    Transmit,
    /// `XDP_REDIRECT` to the interface on which the request arrived.
    Redirect,
}

/// Trust in the kernel's report on whether the system clock is synchronised.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ClockTrust {
    /// The system clock is served as synchronised only while the kernel reports it as synchronised;
    /// otherwise replies carry leap indicator 3 and stratum 0.
    #[default]
    Kernel,
    /// The system clock is served as synchronised whatever the kernel reports.
    Local,
}

/// Complete configuration of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerConfig {
    /// Listen addresses and ports. Port 0 stands for a free port, the same for all threads.
    pub listen: Vec<SocketAddr>,
    /// Engines that answer requests.
    pub engine: EngineSelection,
    /// Interfaces on which XDP answers, in addition to those of PTP; if empty, all that are up and
    /// have a listen address.
    pub interfaces: Vec<String>,
    /// True to attach XDP programs in generic mode instead of native mode.
    pub xdp_generic: bool,
    /// Method by which the XDP engine transmits replies.
    pub xdp_reply: XdpTransmitMethod,
    /// Number of threads of the socket engine per listen address.
    pub threads: usize,
    /// Distribution of work among these threads.
    pub dispatch: SocketSharingMode,
    /// With [`SocketSharingMode::PerThread`]: true to steer each packet to the thread on the core
    /// that received it, instead of by a hash of its addresses. Faster if the NIC spreads packets
    /// over the cores; slower if one core receives them all.
    pub steer_by_cpu: bool,
    /// Trust in the kernel's report on whether its clock is synchronised.
    pub trust: ClockTrust,
    /// Stratum announced while synchronised, unless that of the selected source is announced (see
    /// [`SourceConfig::keep_stratum`]).
    pub stratum: u8,
    /// Reference identifier; by default that of the selected source, and without sources `LOCL` at
    /// stratum 1 and 127.127.1.1 above it.
    pub reference_id: Option<[u8; 4]>,
    /// Leap indicator while synchronised; by default that of the list of leap seconds, the kernel
    /// or the selected source.
    pub leap: Option<LeapIndicator>,
    /// Root delay: round-trip delay to the reference clock. That of the selected source replaces
    /// it, unless [`SourceConfig::keep_root_delay`] is true.
    pub root_delay: Span,
    /// Root dispersion; by default that of the selected source, and without sources the kernel's
    /// estimate of the maximum error, or zero with [`ClockTrust::Local`].
    pub root_dispersion: Option<Span>,
    /// Test: offset of the served time from the system clock.
    pub test_offset: Span,
    /// Test: drift of the served time against the system clock from the start on, in ppb.
    pub test_drift_ppb: i64,
    /// Time after which a clock page expires.
    pub page_life: Duration,
    /// Receive buffer size to request for each socket, in bytes; the kernel may grant less.
    pub receive_buffer_bytes: usize,
    /// Path of the status socket, used by `horolog status`; none by default.
    pub status_socket: Option<PathBuf>,
    /// Rate limits, and lists of allowed and denied prefixes; none by default.
    pub limits: LimitsConfig,
    /// Size and engine of interleaved mode.
    pub interleaved: InterleavedConfig,
    /// List and treatment of leap seconds, and addresses of smeared time.
    pub leap_seconds: LeapConfig,
    /// Time sources, and what is announced of the selected one.
    pub source: SourceConfig,
    /// Rules by which times of sources are plausible, and the file of the saved time.
    pub plausibility: PlausibilityConfig,
    /// Receiver that calibrates the system clock and is a further time source.
    pub calibration: Option<CalibrationConfig>,
    /// Files and addresses of Network Time Security and symmetric keys; off by default.
    pub nts: NtsConfig,
    /// Transmit and hardware timestamps that the sockets take.
    pub timestamps: TimestampsConfig,
    /// PTP ports and their profile; off without interfaces.
    pub ptp: PtpConfig,
    /// Options for metrics, the live page, the sandbox and the user.
    pub operation: MetricsAndPrivilegesConfig,
}

impl Default for ServerConfig {
    /// Listens on all addresses at the NTP port with one thread, no test offset and no status
    /// socket.
    fn default() -> Self {
        Self {
            listen: vec![
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT),
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT),
            ],
            engine: EngineSelection::default(),
            interfaces: Vec::new(),
            xdp_generic: false,
            xdp_reply: XdpTransmitMethod::default(),
            threads: 1,
            dispatch: SocketSharingMode::default(),
            steer_by_cpu: false,
            trust: ClockTrust::default(),
            stratum: DEFAULT_STRATUM,
            reference_id: None,
            leap: None,
            root_delay: Span::ZERO,
            root_dispersion: None,
            test_offset: Span::ZERO,
            test_drift_ppb: 0,
            page_life: Duration::from_secs(1),
            receive_buffer_bytes: 8 << 20,
            status_socket: None,
            limits: LimitsConfig::default(),
            interleaved: InterleavedConfig::default(),
            leap_seconds: LeapConfig::default(),
            source: SourceConfig::default(),
            plausibility: PlausibilityConfig::default(),
            calibration: None,
            nts: NtsConfig::default(),
            timestamps: TimestampsConfig::default(),
            ptp: PtpConfig::default(),
            operation: MetricsAndPrivilegesConfig::default(),
        }
    }
}

impl ServerConfig {
    /// Returns the reference identifier while synchronised: by default `LOCL` at stratum 1 (RFC
    /// 5905, figure 12), and 127.127.1.1 above, the address by which the reference implementation
    /// denotes its undisciplined local clock.
    #[must_use]
    pub fn reference_id(&self) -> [u8; 4] {
        let default = if self.stratum == 1 { *b"LOCL" } else { [127, 127, 1, 1] };
        self.reference_id.unwrap_or(default)
    }

    /// Returns true if the served time is deliberately wrong, for a test.
    #[must_use]
    pub fn has_test_time(&self) -> bool {
        self.test_offset != Span::ZERO || self.test_drift_ppb != 0
    }

    /// Returns true if XDP redirects requests longer than an NTP header to `AF_XDP` sockets of this
    /// process, which it does if requests may be authenticated and the mode is not generic.
    #[must_use]
    pub fn uses_af_xdp(&self) -> bool {
        self.nts.authenticates() && !self.xdp_generic
    }

    /// Returns the first rule that the configuration breaks.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_listen()?;
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(ConfigError::Threads(self.threads));
        }
        if !PAGE_LIVES.contains(&self.page_life) {
            return Err(ConfigError::PageLife(self.page_life));
        }
        self.check_variables()?;
        self.limits.check()?;
        self.interleaved.check()?;
        self.leap_seconds.check()?;
        self.source.check(self.calibration.as_ref())?;
        source::check_calibration(self.calibration.as_ref())?;
        self.nts.check()?;
        self.timestamps.check()?;
        self.ptp.check(&self.timestamps.hardware)?;
        self.operation.check()?;
        self.check_test()
    }

    /// Returns all listen addresses, with those of smeared time last.
    #[must_use]
    pub fn all_listen(&self) -> Vec<SocketAddr> {
        [&self.listen[..], &self.leap_seconds.smear_listen].concat()
    }

    fn check_listen(&self) -> Result<(), ConfigError> {
        let listen = self.all_listen();
        if listen.is_empty() {
            return Err(ConfigError::NoListenAddress);
        }
        for (index, &address) in listen.iter().enumerate() {
            let canonical = address.ip().to_canonical();
            if canonical != address.ip() {
                let plain = SocketAddr::new(canonical, address.port());
                return Err(ConfigError::ListenMapped(address, plain));
            }
            if canonical.is_multicast() || canonical == IpAddr::V4(Ipv4Addr::BROADCAST) {
                return Err(ConfigError::ListenAddress(address));
            }
            if matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
            {
                return Err(ConfigError::ListenScope(address));
            }
            if address.port() != 0 && listen[..index].contains(&address) {
                return Err(ConfigError::ListenTwice(address));
            }
        }
        Ok(())
    }

    fn check_variables(&self) -> Result<(), ConfigError> {
        if !STRATA.contains(&self.stratum) {
            return Err(ConfigError::Stratum(self.stratum));
        }
        if self.root_delay < Span::ZERO {
            return Err(ConfigError::NegativeRoot { option: "--root-delay" });
        }
        if self.root_dispersion.is_some_and(|dispersion| dispersion < Span::ZERO) {
            return Err(ConfigError::NegativeRoot { option: "--root-dispersion" });
        }
        Ok(())
    }

    fn check_test(&self) -> Result<(), ConfigError> {
        if !(-OFFSET_MAX..=OFFSET_MAX).contains(&self.test_offset) {
            return Err(ConfigError::TestOffset(self.test_offset));
        }
        if self.test_drift_ppb.unsigned_abs() > DRIFT_MAX_PPB {
            return Err(ConfigError::TestDrift(self.test_drift_ppb));
        }
        let public = self.all_listen().into_iter().find(|at| !is_not_public(at.ip()));
        match public {
            Some(address) if self.has_test_time() => Err(ConfigError::TestInPublic(address)),
            _ => Ok(()),
        }
    }
}

/// Returns true if the address is loopback, private, link-local or documentation, and so not
/// publicly reachable (RFC 6890; RFC 9637 for `3fff::/20`). Unspecified addresses count as public.
fn is_not_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_documentation()
        }
        IpAddr::V6(ip) => {
            let [first, second, ..] = ip.segments();
            let is_documentation =
                (first == 0x2001 && second == 0xdb8) || (first == 0x3fff && second >> 12 == 0);
            ip.is_loopback()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || is_documentation
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(addresses: &[&str]) -> ServerConfig {
        let listen = addresses.iter().map(|text| text.parse().unwrap()).collect();
        ServerConfig { listen, ..ServerConfig::default() }
    }

    #[test]
    fn the_default_is_right() {
        assert_eq!(ServerConfig::default().check(), Ok(()));
    }

    #[test]
    fn listen_addresses() {
        assert_eq!(listening(&[]).check(), Err(ConfigError::NoListenAddress));
        for bad in ["224.0.1.1:123", "255.255.255.255:123", "[ff02::101]:123"] {
            let error = listening(&[bad]).check().unwrap_err();
            assert_eq!(error, ConfigError::ListenAddress(bad.parse().unwrap()));
        }
        let twice = listening(&["10.0.0.1:123", "[::]:123", "10.0.0.1:123"]).check();
        assert!(matches!(twice, Err(ConfigError::ListenTwice(_))));
        let message = listening(&["[::ffff:10.0.0.1]:123"]).check().unwrap_err().to_string();
        assert!(message.ends_with("write it as --listen 10.0.0.1:123"), "{message}");
        assert_eq!(listening(&["127.0.0.1:0", "127.0.0.1:0"]).check(), Ok(()));
        assert_eq!(listening(&["[fe80::1%2]:123"]).check(), Ok(()));
        let message = listening(&["[fe80::1]:123"]).check().unwrap_err().to_string();
        assert!(message.ends_with("as in --listen '[fe80::1%eth0]:123'"), "{message}");
    }

    #[test]
    fn values_out_of_range() {
        let check = |change: fn(&mut ServerConfig)| {
            let mut config = ServerConfig::default();
            change(&mut config);
            config.check()
        };
        assert_eq!(check(|c| c.stratum = 0), Err(ConfigError::Stratum(0)));
        assert_eq!(check(|c| c.stratum = 16), Err(ConfigError::Stratum(16)));
        assert_eq!(check(|c| c.threads = 0), Err(ConfigError::Threads(0)));
        assert!(check(|c| c.root_delay = Span::from_ns(-1)).is_err());
        assert!(check(|c| c.root_dispersion = Some(Span::from_ns(-1))).is_err());
        assert!(check(|c| c.page_life = Duration::from_millis(100)).is_err());
        assert!(check(|c| c.page_life = Duration::from_secs(3)).is_err());
        assert!(check(|c| c.test_drift_ppb = 100_000_001).is_err());
        assert!(check(|c| c.test_drift_ppb = i64::MIN).is_err());
        assert!(check(|c| c.test_offset = Span::from_ns(i64::MIN)).is_err());
    }

    #[test]
    fn wrong_time_stays_out_of_public() {
        let tested = |address: &str, offset_ns, test_drift_ppb| {
            let test_offset = Span::from_ns(offset_ns);
            ServerConfig { test_offset, test_drift_ppb, ..listening(&[address]) }.check()
        };
        let out_of_reach = [
            "127.0.0.1:123",
            "10.1.2.3:123",
            "172.31.0.1:123",
            "192.168.0.1:123",
            "169.254.0.1:123",
            "192.0.2.1:123",
            "198.51.100.1:123",
            "203.0.113.1:123",
            "[::1]:123",
            "[fd00::1]:123",
            "[fe80::1%2]:123",
            "[2001:db8::1]:123",
            "[3fff:fff::1]:123",
        ];
        for address in out_of_reach {
            assert_eq!(tested(address, 1, 0), Ok(()), "{address}");
            assert_eq!(tested(address, 0, -1), Ok(()), "{address}");
        }
        let public = [
            "0.0.0.0:123",
            "[::]:123",
            "8.8.8.8:123",
            "172.32.0.1:123",
            "[2001:db9::1]:123",
            "[2600::1]:123",
            "[3fff:1000::1]:123",
        ];
        for address in public {
            let refused = ConfigError::TestInPublic(address.parse().unwrap());
            assert_eq!(tested(address, 1, 0), Err(refused.clone()), "{address}");
            assert_eq!(tested(address, 0, 1), Err(refused), "{address}");
            assert_eq!(tested(address, 0, 0), Ok(()), "{address}");
        }
    }

    #[test]
    fn reference_identifiers() {
        let id = |stratum, reference_id| {
            ServerConfig { stratum, reference_id, ..ServerConfig::default() }.reference_id()
        };
        assert_eq!(id(1, None), *b"LOCL");
        assert_eq!(id(2, None), [127, 127, 1, 1]);
        assert_eq!(id(1, Some(*b"PPS\0")), *b"PPS\0");
    }

    #[test]
    fn messages_are_one_line() {
        let public = ConfigError::TestInPublic("0.0.0.0:123".parse().unwrap()).to_string();
        assert!(
            public.contains("which 0.0.0.0:123 could give to third parties; listen on"),
            "{public}"
        );
        assert!(!public.contains('\n'));
    }
}
