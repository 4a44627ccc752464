//! A connection to NATS: where its servers are, who one is to them, and why they could not be used,
//! in words for the user. Secrets are read from files that other users cannot read and are never
//! shown, and what is held here of them is wiped. It neither creates nor sends anything.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};
use horolog_sys::private_file::{self, PrivateFileError};
use zeroize::Zeroizing;

use crate::fault::shown;

/// How long one server may take to answer when it is connected to.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a request to a server may take.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// A connection on which nothing comes back for about three of these is given up.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The longest wait before a lost connection is tried again.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Bytes of a file with a secret, at most: a user's credentials take about a thousand.
const SECRET_BYTES_MAX: u64 = 64 << 10;
/// Characters of a wrong address that are shown.
const SHOWN_MAX: usize = 200;
/// Servers that may be named.
const SERVERS_MAX: usize = 64;

/// Which NATS, and who one is there.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Its servers, as `nats://HOST:PORT` or `tls://HOST:PORT`; any of them will do.
    pub servers: Vec<String>,
    /// Who one is there.
    pub identity: Identity,
    /// How the connection is encrypted.
    pub tls: Tls,
    /// On how many servers of a cluster each stream and bucket is kept that is made.
    pub replicas: usize,
}

/// Who one is to a broker.
#[derive(Clone, Default, Debug)]
pub enum Identity {
    /// Nobody in particular.
    #[default]
    Nobody,
    /// What this file says: a token and a key (`nsc generate creds`).
    Credentials(PathBuf),
    /// Whoever has the key whose seed is in this file (`nk -gen user`).
    Key(PathBuf),
    /// A user with the password that is the first line of this file.
    User {
        /// The name.
        name: String,
        /// The file.
        password: PathBuf,
    },
}

/// How a connection is encrypted.
#[derive(Clone, Default, Debug)]
pub struct Tls {
    /// Whether an unencrypted connection is refused.
    pub required: bool,
    /// The certificates of the authorities that are believed; the system's where it is absent.
    pub authorities: Option<PathBuf>,
    /// One's own certificate and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Why a broker cannot be used; one line.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// An address that is none.
    #[error(
        "'{0}' is no address of a NATS server; write nats://HOST:PORT or tls://HOST:PORT, several \
         with commas"
    )]
    Address(String),
    /// An address with a password in it.
    #[error(
        "the address of the NATS server has a user or password in it, which everybody on this \
         machine can read; use --user and --password-file, --nkey or --creds"
    )]
    SecretInAddress,
    /// A file of secrets is not read.
    #[error("{} {error}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// Why.
        error: PrivateFileError,
    },
    /// A file does not have what it should.
    #[error("{} {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// Nothing answers.
    #[error(
        "no NATS server answers at {servers}: {why}; start one there, or name another with --nats"
    )]
    Unreachable {
        /// Where.
        servers: String,
        /// Why.
        why: String,
    },
    /// One is not let in.
    #[error(
        "the NATS server at {0} refuses these credentials; give others with --creds, --nkey, or \
         --user and --password-file"
    )]
    NotLetIn(String),
    /// It lets in nobody without a name.
    #[error(
        "the NATS server at {0} lets in only those it knows; say who this is with --creds, --nkey, \
         or --user and --password-file"
    )]
    Nameless(String),
    /// TLS is wanted and not had.
    #[error(
        "the NATS server at {0} has no TLS; have it use TLS, or leave out --tls-required and write \
         nats:// where this goes unencrypted on purpose"
    )]
    NoTls(String),
    /// No trust comes about.
    #[error(
        "TLS with the NATS server at {servers} fails: {why}; --ca names the authority that it is \
         certified by, --cert and --key what it may ask for"
    )]
    Tls {
        /// Where.
        servers: String,
        /// Why.
        why: String,
    },
    /// It keeps nothing.
    #[error(
        "the NATS server at {servers} has no JetStream for this user, and results are kept there \
         ({why}); start it with --jetstream, or allow the account to use it"
    )]
    NoJetStream {
        /// Where.
        servers: String,
        /// Why.
        why: String,
    },
    /// It was asked for something and does not do it.
    #[error("the NATS server does not {what}: {why}")]
    Request {
        /// What it was asked for, as in 'keep a report'.
        what: &'static str,
        /// Why it does not.
        why: String,
    },
    /// It does not answer in time.
    #[error("the NATS server did not {0} in time; it may be gone or cut off")]
    Late(&'static str),
}

/// What an error and those that it comes from say, in one line.
pub(super) fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many errors say what their cause says.
        if !text.contains(&next) {
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    text.replace(char::is_control, " ")
}

impl Broker {
    /// Servers without encryption or identity.
    #[must_use]
    pub fn plain(servers: Vec<String>) -> Self {
        Self { servers, identity: Identity::Nobody, tls: Tls::default(), replicas: 1 }
    }

    /// Its servers, for the user.
    #[must_use]
    pub fn shown(&self) -> String {
        self.servers.join(", ")
    }

    /// Whether its servers can be what they are said to be; nothing is asked.
    ///
    /// # Errors
    ///
    /// [`NatsError::Address`] or [`NatsError::SecretInAddress`].
    pub fn check(&self) -> Result<(), NatsError> {
        self.addresses().map(drop)
    }

    fn addresses(&self) -> Result<Vec<ServerAddr>, NatsError> {
        let wrong = |text: &str| NatsError::Address(shown(text, SHOWN_MAX));
        // Before any could be shown.
        if self.servers.iter().any(|text| text.contains('@')) {
            return Err(NatsError::SecretInAddress);
        }
        if !(1..=SERVERS_MAX).contains(&self.servers.len()) {
            return Err(wrong(&self.shown()));
        }
        let address = |text: &String| {
            let text = text.trim();
            let address: ServerAddr = text.parse().map_err(|_| wrong(text))?;
            let is_plain = matches!(address.scheme(), "nats" | "tls") && !address.host().is_empty();
            if is_plain { Ok(address) } else { Err(wrong(text)) }
        };
        self.servers.iter().map(address).collect()
    }

    /// Connects, as a client of this name, to which the answers to its requests come by subjects of
    /// its own: `_INBOX.`, this, and more. What was read wrongly is found out here, and a server
    /// that does not answer is waited for a few seconds. From then on a lost connection is tried
    /// again without end.
    ///
    /// # Errors
    ///
    /// [`NatsError`].
    pub async fn connect(&self, name: &str, inbox: &str) -> Result<Client, NatsError> {
        let addresses = self.addresses()?;
        let options = self.options(name)?.custom_inbox_prefix(format!("_INBOX.{inbox}"));
        options.connect(addresses).await.map_err(|error| self.connect_error(&error))
    }

    fn options(&self, name: &str) -> Result<ConnectOptions, NatsError> {
        let options = ConnectOptions::new()
            .name(name)
            .connection_timeout(CONNECT_PATIENCE)
            .request_timeout(Some(REQUEST_PATIENCE))
            .ping_interval(PING_INTERVAL)
            .reconnect_delay_callback(retry_delay)
            .require_tls(self.tls.required);
        let options = match &self.tls.authorities {
            Some(path) => options.add_root_certificates(readable(path)?.to_owned()),
            None => options,
        };
        let options = match &self.tls.own {
            Some((certificate, key)) => {
                drop(secret(key)?);
                options.add_client_certificate(readable(certificate)?.to_owned(), key.clone())
            }
            None => options,
        };
        self.identify(options)
    }

    fn identify(&self, options: ConnectOptions) -> Result<ConnectOptions, NatsError> {
        match &self.identity {
            Identity::Nobody => Ok(options),
            Identity::Credentials(path) => {
                let text = secret(path)?;
                options.credentials(&text).map_err(|_| NatsError::File {
                    path: path.clone(),
                    what: "holds no user's credentials; make them with 'nsc generate creds'".into(),
                })
            }
            Identity::Key(path) => {
                let text = secret(path)?;
                let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
                let wrong = || NatsError::File {
                    path: path.clone(),
                    what: "holds no seed of a user's key, which begins with SU; make one with \
                           'nk -gen user'"
                        .into(),
                };
                let seed = seed.ok_or_else(wrong)?;
                nkeys::KeyPair::from_seed(seed).map_err(|_| wrong())?;
                Ok(options.nkey(seed.to_owned()))
            }
            Identity::User { name, password } => {
                let text = secret(password)?;
                let password = text.lines().next().unwrap_or_default().to_owned();
                Ok(options.user_and_password(name.clone(), password))
            }
        }
    }

    fn connect_error(&self, error: &async_nats::ConnectError) -> NatsError {
        let servers = self.shown();
        let why = error.source().map_or_else(|| error.to_string(), told);
        // A failed handshake is told as an error of the connection.
        let is_tls = ["certificate", "TLS", "received corrupt message", "fatal alert"]
            .iter()
            .any(|word| why.contains(word));
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                match self.identity {
                    Identity::Nobody => NatsError::Nameless(servers),
                    _ => NatsError::NotLetIn(servers),
                }
            }
            // What it says to a beginning of TLS is text.
            _ if why.contains("InvalidContentType") => NatsError::NoTls(servers),
            ConnectErrorKind::Tls => NatsError::Tls { servers, why },
            _ if is_tls => NatsError::Tls { servers, why },
            _ => NatsError::Unreachable { servers, why },
        }
    }
}

fn secret(path: &Path) -> Result<Zeroizing<String>, NatsError> {
    let failed = |error| NatsError::Secret { path: path.to_owned(), error };
    private_file::read(path, SECRET_BYTES_MAX).map(Zeroizing::new).map_err(failed)
}

/// Finds out that a file cannot be read before the broker's library would say so in its own words.
fn readable(path: &Path) -> Result<&Path, NatsError> {
    let failed = |error| NatsError::Secret { path: path.to_owned(), error };
    std::fs::File::open(path).map_err(|error| failed(error.into()))?;
    Ok(path)
}

/// Doubles from 50 ms on. Agents that were cut off together do not come back in the same moment:
/// each has lost its connection at another time and has waited for another while.
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

    fn refusal(broker: &Broker) -> String {
        broker.addresses().unwrap_err().to_string()
    }

    #[test]
    fn addresses_are_checked_and_their_secrets_never_shown() {
        for text in ["nats://192.0.2.1:4222", "192.0.2.1", "tls://broker", "nats://[::1]:4222"] {
            Broker::plain(vec![text.into()]).addresses().unwrap();
        }
        for text in ["", "http://broker", "ws://broker", "nats://", "nats://a b"] {
            let error = refusal(&Broker::plain(vec![text.into()]));
            assert!(error.contains("is no address of a NATS server"), "{text}: {error}");
        }
        assert!(refusal(&Broker::plain(vec![])).contains("is no address"));
        let secret = || "nats://me:hidden@broker".to_owned();
        let many = vec![secret(); SERVERS_MAX + 1];
        for servers in [vec![secret()], vec!["http://b".into(), secret()], many] {
            let error = refusal(&Broker::plain(servers));
            assert!(error.contains("--password-file") && !error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn files_of_secrets_are_read_as_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let with = |identity| Broker { identity, ..Broker::plain(vec!["nats://b".into()]) };
        let why = |identity| with(identity).options("n").map(drop).unwrap_err().to_string();
        assert!(why(Identity::Key(path.clone())).contains("cannot be read: "));
        fs::write(&path, "hidden").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(why(Identity::Credentials(path.clone())).contains("run 'chmod o=' on it"));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for (identity, what) in [
            (Identity::Credentials(path.clone()), "holds no user's credentials"),
            (Identity::Key(path.clone()), "holds no seed of a user's key"),
        ] {
            let error = why(identity);
            assert!(error.contains(what) && !error.contains("hidden"), "{error}");
        }
        let user = Identity::User { name: "me".into(), password: path.clone() };
        let options = with(user).options("n").unwrap();
        assert!(!format!("{options:?}").contains("hidden"));
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        fs::write(&path, format!("# a key\n{seed}\n")).unwrap();
        with(Identity::Key(path.clone())).options("n").unwrap();
        fs::write(&path, seed.replace('S', "T")).unwrap();
        assert!(why(Identity::Key(path)).contains("holds no seed"));
    }

    #[test]
    fn who_is_nobody_is_asked_who_that_is() {
        let kinds = [ConnectErrorKind::AuthorizationViolation, ConnectErrorKind::Authentication];
        for kind in kinds {
            let why = |identity| {
                let broker = Broker { identity, ..Broker::plain(vec!["nats://b".into()]) };
                broker.connect_error(&kind.into()).to_string()
            };
            assert!(why(Identity::Nobody).contains("lets in only those it knows"));
            assert!(why(Identity::Key("k".into())).contains("refuses these credentials"));
        }
    }

    #[test]
    fn a_lost_connection_is_tried_again_soon_and_then_calmly() {
        let delays = [0, 1, 2, 5, 6, 7, 1_000].map(retry_delay).map(|delay| delay.as_millis());
        assert_eq!(delays, [0, 50, 100, 800, 1_600, 2_000, 2_000]);
    }
}
