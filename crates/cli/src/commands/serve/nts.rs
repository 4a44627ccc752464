//! Flags of `horolog serve` for Network Time Security and symmetric keys.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_server::{KeLimits, NtsConfig};

use crate::failure::Failure;
use crate::values;

#[derive(Args, Debug)]
pub(crate) struct NtsArgs {
    /// Certificate chain for Network Time Security, in PEM; needs --nts-key.
    #[arg(long, value_name = "FILE")]
    nts_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    nts_key: Option<PathBuf>,
    /// Address and port for NTS key establishment; can be given more than once [default: the
    /// addresses of --listen with port 4460].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    nts_ke_listen: Vec<SocketAddr>,
    /// File with the secret that all servers of a service share, so that a cookie of one is good
    /// at every other: 64 hexadecimal digits, as 'openssl rand -hex 32' makes them [default: a
    /// secret of its own, which ends with the server].
    #[arg(long, value_name = "FILE")]
    nts_master_secret: Option<PathBuf>,
    /// NTP server that key establishment sends clients to [default: the one that they asked].
    #[arg(long, value_name = "NAME")]
    nts_ke_server: Option<String>,
    /// Connections for key establishment at a time.
    #[arg(long, value_name = "N", default_value_t = KeLimits::default().connections)]
    nts_ke_connections: usize,
    /// Connections of one client (IPv4 address, IPv6 /64) at a time; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = KeLimits::default().connections_per_prefix)]
    nts_ke_connections_per_prefix: u32,
    /// Connections of one client in a second, in the long run; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = KeLimits::default().rate_per_prefix)]
    nts_ke_rate_per_prefix: u32,
    /// How long a key seals cookies, 60s to 366 days; it opens them for seven times as long
    /// [default: 86400s].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    nts_rotation: Option<Duration>,
    /// File of symmetric keys, as chronyd and ntpd have it: IDENTIFIER TYPE KEY in each line, of
    /// types AES128, AES256, SHA1, SHA256, SHA384 and SHA512.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

impl NtsArgs {
    #[allow(clippy::unnecessary_wraps, reason = "as for the flags of every other subject")]
    pub(crate) fn resolve(self) -> Result<NtsConfig, Failure> {
        let default = NtsConfig::default();
        Ok(NtsConfig {
            certificate: self.nts_cert,
            key: self.nts_key,
            ke_listen: self.nts_ke_listen,
            ke_server: self.nts_ke_server,
            ke_limits: KeLimits {
                connections: self.nts_ke_connections,
                connections_per_prefix: self.nts_ke_connections_per_prefix,
                rate_per_prefix: self.nts_ke_rate_per_prefix,
                ..KeLimits::default()
            },
            master_secret: self.nts_master_secret,
            rotation: self.nts_rotation.unwrap_or(default.rotation),
            keys: self.keys,
        })
    }
}
