//! Flags of `horolog serve` for operation, leap seconds, interleaved mode, timestamps and NTS.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_ke::NtsKeLimits;
use horolog_report::html::{LivePageKind, live};
use horolog_server::{
    InterleavedConfig, InterleavedEngineSelection, LeapConfig, MetricsAndPrivilegesConfig,
    NtsConfig, SandboxMode, ServerLivePageConfig, SystemLeapBehaviour, TimestampsConfig,
};

use super::log::LogFormat;
use crate::failure::CommandFailure;
use crate::values;

#[derive(Args, Debug)]
pub(crate) struct ServeOperationArgs {
    /// Configuration file in TOML, with keys named as the flags, which take precedence. SIGHUP
    /// rereads it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check all options and the files that they name, print them as a configuration file, and
    /// exit.
    #[arg(long)]
    pub(crate) check: bool,
    /// Address on which to serve GET /metrics (Prometheus) and GET /healthz [default: none].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    metrics: Option<SocketAddr>,
    /// Address on which to serve a live page, with its values as JSON at /live.json, and the
    /// metrics [default: none; 127.0.0.1:9123 without an address].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9123")]
    web: Option<SocketAddr>,
    /// File with the token of the live page: a line of at least 16 bytes, readable by its owner
    /// only. Required on an address that is not loopback. Read only when the server starts, not on
    /// SIGHUP.
    #[arg(long, value_name = "FILE", requires = "web")]
    web_token_file: Option<PathBuf>,
    /// Format of events on standard error.
    #[arg(long, value_enum, default_value_t = LogFormatArg::Text)]
    pub(crate) log: LogFormatArg,
    /// Drop unneeded privileges once the sockets are open: capabilities, files (Landlock) and
    /// system calls (seccomp). Auto uses what the kernel supports; required fails without full
    /// support.
    #[arg(long, value_enum, default_value_t = SandboxArg::Auto)]
    sandbox: SandboxArg,
    /// User to switch to once the sockets are open [default: no change].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SandboxArg {
    Auto,
    Required,
    Off,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormatArg {
    Text,
    Json,
}

impl From<LogFormatArg> for LogFormat {
    fn from(arg: LogFormatArg) -> Self {
        match arg {
            LogFormatArg::Text => Self::Text,
            LogFormatArg::Json => Self::Json,
        }
    }
}

impl ServeOperationArgs {
    #[allow(clippy::unnecessary_wraps, reason = "all subjects resolve alike")]
    pub(crate) fn resolve(
        self,
    ) -> Result<MetricsAndPrivilegesConfig, crate::failure::CommandFailure> {
        Ok(MetricsAndPrivilegesConfig {
            metrics: self.metrics,
            web: self.web.map(|address| ServerLivePageConfig {
                address,
                token_file: self.web_token_file,
                page: live(LivePageKind::Serve),
            }),
            sandbox: match self.sandbox {
                SandboxArg::Auto => SandboxMode::BestEffort,
                SandboxArg::Required => SandboxMode::Required,
                SandboxArg::Off => SandboxMode::Off,
            },
            user: self.user,
            // Filled by `ServeOptions::new`, which knows all options that name files.
            files: Vec::new(),
        })
    }
}

#[derive(Args, Debug)]
pub(crate) struct ServeInterleavedArgs {
    /// Clients remembered for interleaved mode, 16 bytes each, rounded up to a power of two, up to
    /// 268435456; 0 disables it [default: 1048576].
    #[arg(long, value_name = "N")]
    interleaved_clients: Option<usize>,
    /// Engine that answers interleaved requests if XDP answers the others. xdp: XDP; socket: the
    /// sockets; auto: the sockets on interfaces whose hardware timestamps are in use (--timestamps
    /// IF=hardware), otherwise XDP.
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = InterleavedEngineArg::Auto)]
    interleaved: InterleavedEngineArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum InterleavedEngineArg {
    Auto,
    Xdp,
    Socket,
}

impl ServeInterleavedArgs {
    #[allow(clippy::unnecessary_wraps, reason = "every group of flags resolves alike")]
    pub(crate) fn resolve(self) -> Result<InterleavedConfig, crate::failure::CommandFailure> {
        let default = InterleavedConfig::default();
        Ok(InterleavedConfig {
            clients: self.interleaved_clients.unwrap_or(default.clients),
            engine: match self.interleaved {
                InterleavedEngineArg::Auto => InterleavedEngineSelection::Auto,
                InterleavedEngineArg::Xdp => InterleavedEngineSelection::Xdp,
                InterleavedEngineArg::Socket => InterleavedEngineSelection::Socket,
            },
        })
    }
}

#[derive(Args, Debug)]
pub(crate) struct ServeLeapSecondArgs {
    /// List of leap seconds, such as /usr/share/zoneinfo/leap-seconds.list [default: the kernel's
    /// announcement].
    #[arg(long, value_name = "FILE")]
    leap_file: Option<PathBuf>,
    /// Offset of TAI from UTC in seconds, for PTP [default: that of the list, of a receiver, or of
    /// the kernel].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i16).range(0..1000))]
    tai_offset: Option<i16>,
    /// Behaviour of the system clock at a leap second: steps (or is stepped), slews (runs on and is
    /// slewed afterwards), or smears (as the clocks that it follows do).
    #[arg(long, value_enum, default_value_t = SystemLeapBehaviourArg::Steps)]
    leap_system: SystemLeapBehaviourArg,
    /// Duration of a smear, centred on the leap second [default: 86400s, from noon to noon].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    leap_smear: Option<Duration>,
    /// Address and port on which to serve smeared time; without --listen, no other address is then
    /// served. Repeatable. Requires --leap-file.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    smear_listen: Vec<SocketAddr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SystemLeapBehaviourArg {
    Steps,
    Slews,
    Smears,
}

impl ServeLeapSecondArgs {
    /// Returns true if the default addresses serve UTC: if no address for smeared time is
    /// specified.
    pub(crate) fn serves_utc(&self) -> bool {
        self.smear_listen.is_empty()
    }

    #[allow(clippy::unnecessary_wraps, reason = "the groups of flags are resolved alike")]
    pub(crate) fn resolve(self) -> Result<LeapConfig, crate::failure::CommandFailure> {
        let default = LeapConfig::default();
        Ok(LeapConfig {
            file: self.leap_file,
            tai_offset_s: self.tai_offset,
            system: match self.leap_system {
                SystemLeapBehaviourArg::Steps => SystemLeapBehaviour::Steps,
                SystemLeapBehaviourArg::Slews => SystemLeapBehaviour::Slews,
                SystemLeapBehaviourArg::Smears => SystemLeapBehaviour::Smears,
            },
            smear: self.leap_smear.unwrap_or(default.smear),
            smear_listen: self.smear_listen,
        })
    }
}

#[derive(Args, Debug)]
pub(crate) struct ServeTimestampsArgs {
    /// Timestamps of the sockets. kernel: the kernel timestamps requests and interleaved replies;
    /// none: it timestamps requests only; IF=hardware: the NIC of interface IF timestamps both.
    /// Repeatable [default: kernel].
    ///
    /// With none, an interleaved reply carries the server's own reading of the clock. The
    /// timestamping of a NIC is enabled while the server runs.
    #[arg(long, value_name = "kernel|none|IF=hardware", value_parser = kind)]
    timestamps: Vec<TimestampSourceArg>,
}

/// Value of `--timestamps`; `Hardware` has the name of the interface.
#[derive(Clone, PartialEq, Eq, Debug)]
enum TimestampSourceArg {
    None,
    Kernel,
    Hardware(String),
}

fn kind(text: &str) -> Result<TimestampSourceArg, String> {
    match text.split_once('=') {
        None if text == "none" => Ok(TimestampSourceArg::None),
        None if text == "kernel" => Ok(TimestampSourceArg::Kernel),
        Some((interface, "hardware")) if !interface.is_empty() => {
            Ok(TimestampSourceArg::Hardware(interface.to_owned()))
        }
        _ => Err("expected kernel, none or INTERFACE=hardware".to_owned()),
    }
}

impl ServeTimestampsArgs {
    pub(crate) fn resolve(self) -> Result<TimestampsConfig, CommandFailure> {
        let is_requested = |kind: &TimestampSourceArg| self.timestamps.contains(kind);
        if is_requested(&TimestampSourceArg::None) && is_requested(&TimestampSourceArg::Kernel) {
            return Err(CommandFailure::usage(
                "--timestamps none and --timestamps kernel exclude each other",
            ));
        }
        let transmit = !is_requested(&TimestampSourceArg::None);
        let hardware = self.timestamps.into_iter().filter_map(|kind| match kind {
            TimestampSourceArg::Hardware(interface) => Some(interface),
            TimestampSourceArg::None | TimestampSourceArg::Kernel => None,
        });
        Ok(TimestampsConfig { transmit, hardware: hardware.collect() })
    }
}

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
    #[arg(long, value_name = "N", default_value_t = NtsKeLimits::default().connections)]
    nts_ke_connections: usize,
    /// Limit on concurrent connections of one client (IPv4 address, IPv6 /64); 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = NtsKeLimits::default().connections_per_prefix)]
    nts_ke_connections_per_prefix: u32,
    /// Long-term limit on connections per second of one client; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = NtsKeLimits::default().rate_per_prefix)]
    nts_ke_rate_per_prefix: u32,
    /// Time for which a key encrypts new cookies, 60s to 366 days; after it, the key still decrypts
    /// cookies for seven times as long [default: 86400s].
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
            ke_limits: NtsKeLimits {
                connections: self.nts_ke_connections,
                connections_per_prefix: self.nts_ke_connections_per_prefix,
                rate_per_prefix: self.nts_ke_rate_per_prefix,
                ..NtsKeLimits::default()
            },
            master_secret: self.nts_master_secret,
            rotation: self.nts_rotation.unwrap_or(default.rotation),
            keys: self.keys,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(kind("none"), Ok(TimestampSourceArg::None));
        assert_eq!(kind("eth0=hardware"), Ok(TimestampSourceArg::Hardware("eth0".to_owned())));
        for bad in ["", "hardware", "=hardware", "eth0=", "eth0=none", "Kernel"] {
            assert!(kind(bad).is_err(), "{bad}");
        }
    }
}
