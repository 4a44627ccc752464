//! Flags that say where NATS is and who one is there.

use std::path::PathBuf;

use clap::Args;
use horolog_campaign::nats::{Broker, Identity, NatsError, Tls};

use crate::failure::Failure;

impl From<NatsError> for Failure {
    fn from(error: NatsError) -> Self {
        match error {
            NatsError::Address(_) | NatsError::SecretInAddress => Self::usage(error),
            error => Self::environment(error),
        }
    }
}

/// Where NATS is, and who one is there.
#[derive(Args, Debug)]
#[command(next_help_heading = "NATS")]
pub(super) struct BrokerArgs {
    /// Servers of one NATS, as nats://HOST:PORT or tls://HOST:PORT; any of them will do.
    #[arg(
        long = "nats",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "nats://127.0.0.1:4222"
    )]
    servers: Vec<String>,
    /// Be who this file says, with a token and a key: credentials as 'nsc generate creds' makes
    /// them.
    #[arg(long, value_name = "FILE", group = "identity")]
    creds: Option<PathBuf>,
    /// Be whoever has the key whose seed is in this file.
    #[arg(long, value_name = "FILE", group = "identity")]
    nkey: Option<PathBuf>,
    /// Be this user, with a password.
    #[arg(long, value_name = "NAME", group = "identity", requires = "password_file")]
    user: Option<String>,
    /// The file whose first line is that password.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Believe servers that these authorities have certified [default: those of the system].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Show servers this certificate.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Refuse a server without TLS.
    #[arg(long)]
    tls_required: bool,
    /// On how many servers of a cluster what is told is kept, 1 to 5. Whoever comes first decides.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
}

impl BrokerArgs {
    pub(super) fn broker(&self) -> Broker {
        let password = || self.password_file.clone().unwrap_or_default();
        let identity = match (&self.creds, &self.nkey, &self.user) {
            (Some(path), _, _) => Identity::Credentials(path.clone()),
            (_, Some(path), _) => Identity::Key(path.clone()),
            (_, _, Some(name)) => Identity::User { name: name.clone(), password: password() },
            (None, None, None) => Identity::Nobody,
        };
        Broker {
            servers: self.servers.clone(),
            identity,
            tls: Tls {
                required: self.tls_required,
                authorities: self.ca.clone(),
                own: self.cert.clone().zip(self.key.clone()),
            },
            replicas: self.replicas.into(),
        }
    }
}
