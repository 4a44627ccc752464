//! Connection to NATS: servers, authentication, TLS, and error messages. Secrets are read only from
//! files that other users cannot read, are never part of a message, and are wiped from memory.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};
use horolog_sys::private_file::{self, PrivateFileError};
use zeroize::Zeroizing;

use crate::file_error::sanitised;

/// Timeout for the connection to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request to a server.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of pings; a connection without a reply for about three intervals is closed.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Longest pause before a reconnection attempt.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Largest size of a file with a secret, in bytes; credentials take about a thousand.
const SECRET_BYTES_MAX: u64 = 64 << 10;
/// Largest number of characters shown of an invalid address.
const SHOWN_MAX: usize = 200;
/// Largest number of servers.
const SERVERS_MAX: usize = 64;

/// Options of the connection to a broker.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// Servers, as `nats://HOST:PORT` or `tls://HOST:PORT`; the client connects to any one of them.
    pub servers: Vec<String>,
    /// Identity of the client.
    pub identity: BrokerClientIdentity,
    /// Encryption of the connection.
    pub tls: TlsOptions,
    /// Number of replicas in a cluster for each stream and bucket that is created.
    pub replicas: usize,
}

/// Identity of the client at the broker.
#[derive(Clone, Default, Debug)]
pub enum BrokerClientIdentity {
    /// No identity.
    #[default]
    Anonymous,
    /// Credentials file with a JWT and an `NKey` seed (`nsc generate creds`).
    Credentials(PathBuf),
    /// `NKey` seed in this file (`nk -gen user`).
    Key(PathBuf),
    /// User name, and a file with the password in its first line.
    User {
        /// User name.
        name: String,
        /// Password file.
        password: PathBuf,
    },
}

/// Encryption of a connection.
#[derive(Clone, Default, Debug)]
pub struct TlsOptions {
    /// True if an unencrypted connection is refused.
    pub required: bool,
    /// PEM file of the trusted certificate authorities; the system's by default.
    pub authorities: Option<PathBuf>,
    /// PEM files of the client certificate and its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// Reason why a broker cannot be used; formatted as one line.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// An address is invalid.
    #[error(
        "invalid address '{0}' of a NATS server; write nats://HOST:PORT or tls://HOST:PORT, \
         several with commas"
    )]
    Address(String),
    /// An address has a zone (`%eth0`), which the URL of a NATS server cannot contain.
    #[error(
        "'{0}' has a zone, which addresses of NATS servers do not support; use its name, or an \
         address that is not link-local"
    )]
    Zone(String),
    /// An address includes a user name or a password.
    #[error(
        "the address of the NATS server contains a user or password, visible to every user of this \
         machine; use --user and --password-file, --nkey or --creds"
    )]
    SecretInAddress,
    /// A file of secrets cannot be read.
    #[error("{} {error}", path.display())]
    Secret {
        /// File.
        path: PathBuf,
        /// Reason.
        error: PrivateFileError,
    },
    /// A file has invalid contents.
    #[error("{} {what}", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Error and remedy.
        what: String,
    },
    /// The servers are unreachable.
    #[error(
        "no NATS server answers at {servers}: {why}; start one there, or choose another with --nats"
    )]
    Unreachable {
        /// Servers.
        servers: String,
        /// Reason.
        why: String,
    },
    /// The server refuses the credentials.
    #[error(
        "the NATS server at {0} refused these credentials; choose others with --creds, --nkey, or \
         --user and --password-file"
    )]
    AuthenticationFailed(String),
    /// The server requires an identity.
    #[error(
        "the NATS server at {0} requires authentication; add --creds, --nkey, or --user and \
         --password-file"
    )]
    AuthenticationRequired(String),
    /// TLS is required and not available.
    #[error(
        "the NATS server at {0} does not support TLS; enable it there, or omit --tls-required and \
         write nats:// for an unencrypted connection"
    )]
    TlsUnsupported(String),
    /// The TLS handshake fails.
    #[error(
        "TLS with the NATS server at {servers} failed: {why}; --ca names the authority of its \
         certificate, --cert and --key the client certificate"
    )]
    Tls {
        /// Servers.
        servers: String,
        /// Reason.
        why: String,
    },
    /// `JetStream`, the storage of NATS, is not available.
    #[error(
        "JetStream is unavailable to this user on the NATS server at {servers}, and results are \
         stored there ({why}); start it with --jetstream, or enable it for the account"
    )]
    NoJetStream {
        /// Servers.
        servers: String,
        /// Reason.
        why: String,
    },
    /// The server refuses a request.
    #[error("cannot {what} on the NATS server: {why}")]
    Request {
        /// Failed request, as a verb phrase such as "store a report".
        what: &'static str,
        /// Reason.
        why: String,
    },
    /// The server does not respond in time.
    #[error("cannot {0} on the NATS server: timeout; check that it is reachable")]
    Timeout(&'static str),
}

/// Formats an error and its sources in one line.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many errors already include the text of their source.
        if !text.contains(&next) {
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    text.replace(char::is_control, " ")
}

impl BrokerOptions {
    /// Returns options for servers without encryption or identity.
    #[must_use]
    pub fn unencrypted(servers: Vec<String>) -> Self {
        Self {
            servers,
            identity: BrokerClientIdentity::Anonymous,
            tls: TlsOptions::default(),
            replicas: 1,
        }
    }

    /// Formats the servers, for the user.
    #[must_use]
    pub fn servers_text(&self) -> String {
        self.servers.join(", ")
    }

    /// Checks the addresses of the servers; no connection is made.
    ///
    /// # Errors
    ///
    /// [`NatsError::Address`], [`NatsError::Zone`] or [`NatsError::SecretInAddress`].
    pub fn check(&self) -> Result<(), NatsError> {
        self.addresses().map(drop)
    }

    fn addresses(&self) -> Result<Vec<ServerAddr>, NatsError> {
        let wrong = |text: &str| NatsError::Address(sanitised(text, SHOWN_MAX));
        // Before any address could be shown.
        if self.servers.iter().any(|text| text.contains('@')) {
            return Err(NatsError::SecretInAddress);
        }
        if !(1..=SERVERS_MAX).contains(&self.servers.len()) {
            return Err(wrong(&self.servers_text()));
        }
        let address = |text: &String| {
            let text = text.trim();
            if text.contains('%') {
                return Err(NatsError::Zone(sanitised(text, SHOWN_MAX)));
            }
            let address: ServerAddr = text.parse().map_err(|_| wrong(text))?;
            let is_valid = matches!(address.scheme(), "nats" | "tls") && !address.host().is_empty();
            if is_valid { Ok(address) } else { Err(wrong(text)) }
        };
        self.servers.iter().map(address).collect()
    }

    /// Connects as a client named `name`. Replies to its requests arrive on subjects that begin
    /// with `_INBOX.` and `inbox`. A connection that is lost later is re-established automatically,
    /// with no limit of attempts.
    ///
    /// # Errors
    ///
    /// [`NatsError`].
    pub async fn connect(&self, name: &str, inbox: &str) -> Result<Client, NatsError> {
        let addresses = self.addresses()?;
        let options = self.connect_options(name)?.custom_inbox_prefix(format!("_INBOX.{inbox}"));
        options.connect(addresses).await.map_err(|error| self.connect_error(&error))
    }

    fn connect_options(&self, name: &str) -> Result<ConnectOptions, NatsError> {
        let options = ConnectOptions::new()
            .name(name)
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .ping_interval(PING_INTERVAL)
            .reconnect_delay_callback(retry_delay)
            .require_tls(self.tls.required);
        let options = match &self.tls.authorities {
            Some(path) => options.add_root_certificates(check_readable(path)?.to_owned()),
            None => options,
        };
        let options = match &self.tls.client_certificate {
            Some((certificate, key)) => {
                drop(read_secret(key)?);
                options.add_client_certificate(check_readable(certificate)?.to_owned(), key.clone())
            }
            None => options,
        };
        self.add_identity(options)
    }

    fn add_identity(&self, options: ConnectOptions) -> Result<ConnectOptions, NatsError> {
        match &self.identity {
            BrokerClientIdentity::Anonymous => Ok(options),
            BrokerClientIdentity::Credentials(path) => {
                let text = read_secret(path)?;
                options.credentials(&text).map_err(|_| NatsError::File {
                    path: path.clone(),
                    what: "contains no user credentials; create them with 'nsc generate creds'"
                        .into(),
                })
            }
            BrokerClientIdentity::Key(path) => {
                let text = read_secret(path)?;
                let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
                let wrong = || NatsError::File {
                    path: path.clone(),
                    what: "contains no seed of a user key, which begins with SU; create one with \
                           'nk -gen user'"
                        .into(),
                };
                let seed = seed.ok_or_else(wrong)?;
                nkeys::KeyPair::from_seed(seed).map_err(|_| wrong())?;
                Ok(options.nkey(seed.to_owned()))
            }
            BrokerClientIdentity::User { name, password } => {
                let text = read_secret(password)?;
                let password = text.lines().next().unwrap_or_default().to_owned();
                Ok(options.user_and_password(name.clone(), password))
            }
        }
    }

    fn connect_error(&self, error: &async_nats::ConnectError) -> NatsError {
        let servers = self.servers_text();
        let why = error.source().map_or_else(|| error.to_string(), error_chain);
        // A failed handshake is reported as an error of the connection.
        let is_tls = ["certificate", "TLS", "received corrupt message", "fatal alert"]
            .iter()
            .any(|word| why.contains(word));
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                match self.identity {
                    BrokerClientIdentity::Anonymous => NatsError::AuthenticationRequired(servers),
                    _ => NatsError::AuthenticationFailed(servers),
                }
            }
            // A server without TLS replies to a TLS handshake with text.
            _ if why.contains("InvalidContentType") => NatsError::TlsUnsupported(servers),
            ConnectErrorKind::Tls => NatsError::Tls { servers, why },
            _ if is_tls => NatsError::Tls { servers, why },
            _ => NatsError::Unreachable { servers, why },
        }
    }
}

fn read_secret(path: &Path) -> Result<Zeroizing<String>, NatsError> {
    let failed = |error| NatsError::Secret { path: path.to_owned(), error };
    private_file::read(path, SECRET_BYTES_MAX).map(Zeroizing::new).map_err(failed)
}

/// Checks that a file can be read, because the NATS library's error does not name the file.
fn check_readable(path: &Path) -> Result<&Path, NatsError> {
    let failed = |error| NatsError::Secret { path: path.to_owned(), error };
    std::fs::File::open(path).map_err(|error| failed(error.into()))?;
    Ok(path)
}

/// Returns the pause before a reconnection attempt: none before the first, then 50 ms, doubled up
/// to [`RETRY_MAX`]. No jitter is added, because clients detect a lost connection at different
/// times.
fn retry_delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    if attempts == 0 {
        Duration::ZERO
    } else {
        (Duration::from_millis(50) * (1 << doublings)).min(RETRY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn refusal(broker: &BrokerOptions) -> String {
        broker.addresses().unwrap_err().to_string()
    }

    #[test]
    fn addresses_are_checked_and_their_secrets_never_shown() {
        for text in ["nats://192.0.2.1:4222", "192.0.2.1", "tls://broker", "nats://[::1]:4222"] {
            BrokerOptions::unencrypted(vec![text.into()]).addresses().unwrap();
        }
        for text in ["", "http://broker", "ws://broker", "nats://", "nats://a b"] {
            let error = refusal(&BrokerOptions::unencrypted(vec![text.into()]));
            assert!(error.contains("of a NATS server; write"), "{text}: {error}");
        }
        assert!(refusal(&BrokerOptions::unencrypted(vec![])).contains("invalid address"));
        let secret = || "nats://me:hidden@broker".to_owned();
        let many = vec![secret(); SERVERS_MAX + 1];
        for servers in [vec![secret()], vec!["http://b".into(), secret()], many] {
            let error = refusal(&BrokerOptions::unencrypted(servers));
            assert!(error.contains("--password-file") && !error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn files_of_secrets_are_read_as_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let with = |identity| BrokerOptions {
            identity,
            ..BrokerOptions::unencrypted(vec!["nats://b".into()])
        };
        let why = |identity| with(identity).connect_options("n").map(drop).unwrap_err().to_string();
        assert!(why(BrokerClientIdentity::Key(path.clone())).contains("cannot be read: "));
        fs::write(&path, "hidden").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(
            why(BrokerClientIdentity::Credentials(path.clone())).contains("run 'chmod o=' on it")
        );
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for (identity, what) in [
            (BrokerClientIdentity::Credentials(path.clone()), "contains no user credentials"),
            (BrokerClientIdentity::Key(path.clone()), "contains no seed of a user key"),
        ] {
            let error = why(identity);
            assert!(error.contains(what) && !error.contains("hidden"), "{error}");
        }
        let user = BrokerClientIdentity::User { name: "me".into(), password: path.clone() };
        let options = with(user).connect_options("n").unwrap();
        assert!(!format!("{options:?}").contains("hidden"));
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        fs::write(&path, format!("# a key\n{seed}\n")).unwrap();
        with(BrokerClientIdentity::Key(path.clone())).connect_options("n").unwrap();
        fs::write(&path, seed.replace('S', "T")).unwrap();
        assert!(why(BrokerClientIdentity::Key(path)).contains("contains no seed"));
    }

    #[test]
    fn missing_and_refused_credentials_are_distinguished() {
        let kinds = [ConnectErrorKind::AuthorizationViolation, ConnectErrorKind::Authentication];
        for kind in kinds {
            let why = |identity| {
                let broker = BrokerOptions {
                    identity,
                    ..BrokerOptions::unencrypted(vec!["nats://b".into()])
                };
                broker.connect_error(&kind.into()).to_string()
            };
            assert!(why(BrokerClientIdentity::Anonymous).contains("requires authentication"));
            assert!(
                why(BrokerClientIdentity::Key("k".into())).contains("refused these credentials")
            );
        }
    }

    #[test]
    fn a_lost_connection_is_tried_again_soon_and_then_calmly() {
        let delays = [0, 1, 2, 5, 6, 7, 1_000].map(retry_delay).map(|delay| delay.as_millis());
        assert_eq!(delays, [0, 50, 100, 800, 1_600, 2_000, 2_000]);
    }
}
