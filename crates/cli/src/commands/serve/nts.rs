//! Flags of `horolog serve` for Network Time Security and symmetric keys.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_server::{KeLimits, NtsConfig};

use crate::failure::CommandFailure;
use crate::values;

#[derive(Args, Debug)]
pub(crate) struct ServeNtsArgs {
    /// Certificate chain for Network Time Security, in PEM; requires --nts-key.
    #[arg(long, value_name = "FILE")]
    nts_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    nts_key: Option<PathBuf>,
    /// Address and port for NTS-KE. Repeatable [default: the addresses of --listen with port 4460].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    nts_ke_listen: Vec<SocketAddr>,
    /// File with the secret that all servers of a service share, so that each accepts the cookies
    /// of the others: 64 hexadecimal digits, as from 'openssl rand -hex 32' [default: a random
    /// secret for this run].
    #[arg(long, value_name = "FILE")]
    nts_master_secret: Option<PathBuf>,
    /// NTP server that NTS-KE names to clients for their requests (NTPv4 Server Negotiation)
    /// [default: the one that they contacted].
    #[arg(long, value_name = "NAME")]
    nts_ntp_server: Option<String>,
    /// Limit on concurrent NTS-KE connections.
    #[arg(long, value_name = "N", default_value_t = KeLimits::default().connections)]
    nts_ke_connections: usize,
    /// Limit on concurrent connections of one client (IPv4 address, IPv6 /64); 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = KeLimits::default().connections_per_prefix)]
    nts_ke_connections_per_prefix: u32,
    /// Long-term limit on connections per second of one client; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = KeLimits::default().rate_per_prefix)]
    nts_ke_rate_per_prefix: u32,
    /// Time for which a key seals cookies, 60s to 366 days; it opens them for seven times that
    /// [default: 86400s].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    nts_rotation: Option<Duration>,
    /// File of symmetric keys in the format of chronyd and ntpd: IDENTIFIER TYPE KEY on each line,
    /// of types AES128, AES256, SHA1, SHA256, SHA384 and SHA512.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

impl ServeNtsArgs {
    #[allow(clippy::unnecessary_wraps, reason = "as for the flags of every other subject")]
    pub(crate) fn resolve(self) -> Result<NtsConfig, CommandFailure> {
        let default = NtsConfig::default();
        Ok(NtsConfig {
            certificate: self.nts_cert,
            key: self.nts_key,
            ke_listen: self.nts_ke_listen,
            ke_server: self.nts_ntp_server,
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
