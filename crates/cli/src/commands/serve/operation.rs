//! Flags of `horolog serve` for its configuration file, metrics, logs and privileges.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use horolog_report::html::{Live, live};
use horolog_server::{OperationConfig, Sandbox, WebConfig};

use super::log::LogFormat;
use crate::values;

#[derive(Args, Debug)]
pub(crate) struct OperationArgs {
    /// Configuration file in TOML, with keys named as the flags, which take precedence. SIGHUP
    /// rereads it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check all options and the files that they name, print them as a configuration file, and
    /// exit.
    #[arg(long)]
    pub(crate) check: bool,
    /// Address to serve GET /metrics (Prometheus) and GET /healthz at [default: none].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    metrics: Option<SocketAddr>,
    /// Address to serve a live page at, with its values as JSON at /live.json, and the metrics
    /// [default: none; 127.0.0.1:9123 without an address].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9123")]
    web: Option<SocketAddr>,
    /// File with the token of the live page: a line of at least 16 bytes, readable by its owner
    /// only. Required at an address that is not loopback. It is read at the start.
    #[arg(long, value_name = "FILE", requires = "web")]
    web_token_file: Option<PathBuf>,
    /// Format of events on standard error.
    #[arg(long, value_enum, default_value_t = LogArg::Text)]
    pub(crate) log: LogArg,
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
pub(crate) enum LogArg {
    Text,
    Json,
}

impl From<LogArg> for LogFormat {
    fn from(arg: LogArg) -> Self {
        match arg {
            LogArg::Text => Self::Text,
            LogArg::Json => Self::Json,
        }
    }
}

impl OperationArgs {
    #[allow(clippy::unnecessary_wraps, reason = "all subjects resolve alike")]
    pub(crate) fn resolve(self) -> Result<OperationConfig, crate::failure::CommandFailure> {
        Ok(OperationConfig {
            metrics: self.metrics,
            web: self.web.map(|address| WebConfig {
                address,
                token_file: self.web_token_file,
                page: live(Live::Serve),
            }),
            sandbox: match self.sandbox {
                SandboxArg::Auto => Sandbox::BestEffort,
                SandboxArg::Required => Sandbox::Required,
                SandboxArg::Off => Sandbox::Off,
            },
            user: self.user,
            // Set when all options are known.
            files: Vec::new(),
        })
    }
}
