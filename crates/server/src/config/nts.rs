//! What a server is told of Network Time Security and symmetric keys, and the rules that this must
//! keep. The files are read elsewhere.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use horolog_ke::KeLimits;
use horolog_nts::ROTATION_DEFAULT;

use super::ConfigError;

/// How long a key may seal cookies. A client that is away for seven times as long has to establish
/// new keys.
pub(crate) const ROTATIONS: RangeInclusive<Duration> =
    Duration::from_mins(1)..=Duration::from_hours(24 * 366);

/// Options for Network Time Security and symmetric keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NtsConfig {
    /// The certificate chain of the listener for key establishment, in PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key: Option<PathBuf>,
    /// Where it listens; at the NTP server's addresses with port 4460 when empty.
    pub ke_listen: Vec<SocketAddr>,
    /// The name or address of the NTP server that it sends clients to, when not to this one.
    pub ke_server: Option<String>,
    /// How many connections the listener takes, and of whom.
    pub ke_limits: KeLimits,
    /// The file of the secret that servers share whose cookies are to be good everywhere; a secret
    /// of this server's own, good until it ends, when not given.
    pub master_secret: Option<PathBuf>,
    /// How long a key seals cookies.
    pub rotation: Duration,
    /// The file of symmetric keys; MACs are not looked at when not given.
    pub keys: Option<PathBuf>,
}

impl Default for NtsConfig {
    fn default() -> Self {
        Self {
            certificate: None,
            key: None,
            ke_listen: Vec::new(),
            ke_server: None,
            ke_limits: KeLimits::default(),
            master_secret: None,
            rotation: ROTATION_DEFAULT,
            keys: None,
        }
    }
}

/// Which rule options of NTS break; its text is one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NtsConfigError {
    /// One of two that go together.
    #[error("{given} needs {missing} as well; a listener for NTS takes a certificate and its key")]
    Half {
        /// The option that is there.
        given: &'static str,
        /// The option that is not.
        missing: &'static str,
    },
    /// An option of the listener without the listener.
    #[error("{0} is for the listener for NTS, which needs --nts-cert and --nts-key")]
    NoListener(&'static str),
    /// An address twice.
    #[error("{0} is given twice; give each --nts-ke-listen address once")]
    ListenTwice(SocketAddr),
    /// A name that cannot be sent.
    #[error("--nts-ke-server takes a host name or an address, not '{0}'")]
    Server(String),
    /// A period that is too short or too long.
    #[error("cookie keys cannot change every {} s; --nts-rotation takes 1 minute to 366 days",
            .0.as_secs())]
    Rotation(Duration),
}

impl NtsConfig {
    /// Whether NTS is served: there is a listener for key establishment, here or, with the same
    /// secret, elsewhere.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.certificate.is_some() || self.master_secret.is_some()
    }

    /// Whether requests may be authenticated at all.
    #[must_use]
    pub const fn authenticates(&self) -> bool {
        self.is_on() || self.keys.is_some()
    }

    /// Finds the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.find_fault().map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn find_fault(&self) -> Option<NtsConfigError> {
        let (cert, key) = ("--nts-cert", "--nts-key");
        match (&self.certificate, &self.key) {
            (Some(_), None) => return Some(NtsConfigError::Half { given: cert, missing: key }),
            (None, Some(_)) => return Some(NtsConfigError::Half { given: key, missing: cert }),
            (None, None) if !self.ke_listen.is_empty() => {
                return Some(NtsConfigError::NoListener("--nts-ke-listen"));
            }
            (None, None) if self.ke_server.is_some() => {
                return Some(NtsConfigError::NoListener("--nts-ke-server"));
            }
            _ => {}
        }
        let twice = |(index, address): &(usize, &SocketAddr)| {
            address.port() != 0 && self.ke_listen[..*index].contains(address)
        };
        if let Some((_, address)) = self.ke_listen.iter().enumerate().find(twice) {
            return Some(NtsConfigError::ListenTwice(*address));
        }
        if let Some(name) = self.ke_server.as_ref().filter(|name| !is_name(name)) {
            return Some(NtsConfigError::Server(name.clone()));
        }
        (!ROTATIONS.contains(&self.rotation)).then_some(NtsConfigError::Rotation(self.rotation))
    }
}

/// What RFC 8915, section 4.1.7, lets the record hold: visible ASCII, and no more than a name has.
fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(change: fn(&mut NtsConfig)) -> Option<NtsConfigError> {
        let mut config = NtsConfig::default();
        change(&mut config);
        config.find_fault()
    }

    #[test]
    fn a_certificate_and_its_key_go_together() {
        assert_eq!(fault(|_| ()), None);
        assert!(matches!(fault(|c| c.key = Some("k".into())), Some(NtsConfigError::Half { .. })));
        let message = fault(|c| c.certificate = Some("c".into())).unwrap().to_string();
        assert!(message.starts_with("--nts-cert needs --nts-key as well"), "{message}");
        let both =
            |c: &mut NtsConfig| (c.certificate, c.key) = (Some("c".into()), Some("k".into()));
        assert_eq!(fault(both), None);
        let listen = |c: &mut NtsConfig| c.ke_listen = vec!["[::]:4460".parse().unwrap()];
        assert_eq!(fault(listen), Some(NtsConfigError::NoListener("--nts-ke-listen")));
        let server = |c: &mut NtsConfig| c.ke_server = Some("ntp.example".into());
        assert_eq!(fault(server), Some(NtsConfigError::NoListener("--nts-ke-server")));
    }

    #[test]
    fn a_shared_secret_alone_is_nts_without_a_listener() {
        let mut config = NtsConfig::default();
        assert!(!config.is_on());
        config.master_secret = Some("secret".into());
        assert!(config.is_on() && config.find_fault().is_none());
    }

    #[test]
    fn values_out_of_range() {
        for rotation in [Duration::ZERO, Duration::from_secs(59), Duration::from_hours(9_000)] {
            let config = NtsConfig { rotation, ..NtsConfig::default() };
            assert_eq!(config.find_fault(), Some(NtsConfigError::Rotation(rotation)));
        }
        for name in ["", "two words", "naïve.example"] {
            let (certificate, key) = (Some("c".into()), Some("k".into()));
            let ke_server = Some(name.to_owned());
            let config = NtsConfig { certificate, key, ke_server, ..NtsConfig::default() };
            assert_eq!(config.find_fault(), Some(NtsConfigError::Server(name.to_owned())));
        }
    }
}
