//! Options for Network Time Security and symmetric keys, and their rules. The files are read
//! elsewhere.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use horolog_ke::NtsKeLimits;
use horolog_ke::message::is_ntp_server;
use horolog_nts::ROTATION_DEFAULT;

use super::ConfigError;

/// Range of the period for which a key seals cookies. A client that is absent for seven periods
/// must repeat the NTS-KE exchange.
pub(crate) const ROTATIONS: RangeInclusive<Duration> =
    Duration::from_mins(1)..=Duration::from_hours(24 * 366);

/// Options for Network Time Security and symmetric keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NtsConfig {
    /// Certificate chain of the NTS-KE listener, in PEM.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM.
    pub key: Option<PathBuf>,
    /// Addresses of the NTS-KE listener; if empty, the NTP server's addresses with port 4460.
    pub ke_listen: Vec<SocketAddr>,
    /// Name or address of the NTP server for NTS-KE responses; by default this server.
    pub ke_server: Option<String>,
    /// Limits on the connections of the listener.
    pub ke_limits: NtsKeLimits,
    /// File of a master secret shared by several servers, so that cookies are valid at all of them.
    /// By default this server has a secret of its own until it ends.
    pub master_secret: Option<PathBuf>,
    /// Period after which a new key seals cookies.
    pub rotation: Duration,
    /// File of symmetric keys; by default MACs are not checked.
    pub keys: Option<PathBuf>,
}

impl Default for NtsConfig {
    fn default() -> Self {
        Self {
            certificate: None,
            key: None,
            ke_listen: Vec::new(),
            ke_server: None,
            ke_limits: NtsKeLimits::default(),
            master_secret: None,
            rotation: ROTATION_DEFAULT,
            keys: None,
        }
    }
}

/// Violation of a rule of the NTS options; its text is one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NtsConfigError {
    /// Option without its counterpart, which is required.
    #[error("{present} requires {missing}; the NTS-KE listener needs a certificate and its key")]
    MissingCounterpart {
        /// Option that is present.
        present: &'static str,
        /// Option that is missing.
        missing: &'static str,
    },
    /// Option of the NTS-KE listener without that listener.
    #[error("{0} configures the NTS-KE listener, which requires --nts-cert and --nts-key")]
    NoListener(&'static str),
    /// Duplicate NTS-KE listen address.
    #[error("{0} is specified twice; specify each --nts-ke-listen address once")]
    ListenTwice(SocketAddr),
    /// Name that cannot be sent in an NTS-KE response.
    #[error("--nts-ntp-server takes a host name or an address, not '{0}'")]
    Server(String),
    /// Rotation period that is out of range.
    #[error("a rotation of cookie keys every {} s is out of range; --nts-rotation takes 1 minute \
             to 366 days",
            .0.as_secs())]
    Rotation(Duration),
}

impl NtsConfig {
    /// Returns true if NTS is served: the NTS-KE exchange is with this server, or with another one
    /// that has the same master secret.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.certificate.is_some() || self.master_secret.is_some()
    }

    /// Returns true if requests may be authenticated, by NTS or MACs.
    #[must_use]
    pub const fn authenticates(&self) -> bool {
        self.is_on() || self.keys.is_some()
    }

    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.find_error().map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn find_error(&self) -> Option<NtsConfigError> {
        let (cert, key) = ("--nts-cert", "--nts-key");
        match (&self.certificate, &self.key) {
            (Some(_), None) => {
                return Some(NtsConfigError::MissingCounterpart { present: cert, missing: key });
            }
            (None, Some(_)) => {
                return Some(NtsConfigError::MissingCounterpart { present: key, missing: cert });
            }
            (None, None) if !self.ke_listen.is_empty() => {
                return Some(NtsConfigError::NoListener("--nts-ke-listen"));
            }
            (None, None) if self.ke_server.is_some() => {
                return Some(NtsConfigError::NoListener("--nts-ntp-server"));
            }
            _ => {}
        }
        let twice = |(index, address): &(usize, &SocketAddr)| {
            address.port() != 0 && self.ke_listen[..*index].contains(address)
        };
        if let Some((_, address)) = self.ke_listen.iter().enumerate().find(twice) {
            return Some(NtsConfigError::ListenTwice(*address));
        }
        if let Some(name) = self.ke_server.as_ref().filter(|name| !is_ntp_server(name)) {
            return Some(NtsConfigError::Server(name.clone()));
        }
        (!ROTATIONS.contains(&self.rotation)).then_some(NtsConfigError::Rotation(self.rotation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(change: fn(&mut NtsConfig)) -> Option<NtsConfigError> {
        let mut config = NtsConfig::default();
        change(&mut config);
        config.find_error()
    }

    #[test]
    fn a_certificate_and_its_key_go_together() {
        assert_eq!(fault(|_| ()), None);
        assert!(matches!(
            fault(|c| c.key = Some("k".into())),
            Some(NtsConfigError::MissingCounterpart { .. })
        ));
        let message = fault(|c| c.certificate = Some("c".into())).unwrap().to_string();
        assert!(message.starts_with("--nts-cert requires --nts-key"), "{message}");
        let both =
            |c: &mut NtsConfig| (c.certificate, c.key) = (Some("c".into()), Some("k".into()));
        assert_eq!(fault(both), None);
        let listen = |c: &mut NtsConfig| c.ke_listen = vec!["[::]:4460".parse().unwrap()];
        assert_eq!(fault(listen), Some(NtsConfigError::NoListener("--nts-ke-listen")));
        let server = |c: &mut NtsConfig| c.ke_server = Some("ntp.example".into());
        assert_eq!(fault(server), Some(NtsConfigError::NoListener("--nts-ntp-server")));
    }

    #[test]
    fn a_shared_secret_alone_is_nts_without_a_listener() {
        let mut config = NtsConfig::default();
        assert!(!config.is_on());
        config.master_secret = Some("secret".into());
        assert!(config.is_on() && config.find_error().is_none());
    }

    #[test]
    fn values_out_of_range() {
        for rotation in [Duration::ZERO, Duration::from_secs(59), Duration::from_hours(9_000)] {
            let config = NtsConfig { rotation, ..NtsConfig::default() };
            assert_eq!(config.find_error(), Some(NtsConfigError::Rotation(rotation)));
        }
        let long = "a".repeat(256);
        for name in ["", "two words", "naïve.example", "fe80::1%eth0", "a.example:123", &long] {
            let (certificate, key) = (Some("c".into()), Some("k".into()));
            let ke_server = Some(name.to_owned());
            let config = NtsConfig { certificate, key, ke_server, ..NtsConfig::default() };
            assert_eq!(config.find_error(), Some(NtsConfigError::Server(name.to_owned())));
        }
    }
}
