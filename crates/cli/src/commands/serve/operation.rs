//! Flags of `horolog serve` for its configuration file, metrics, logs and privileges.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use horolog_report::html::{Live, live};
use horolog_server::{OperationConfig, Sandbox, WebConfig};

use super::log::Format;
use crate::values;

#[derive(Args, Debug)]
pub(crate) struct OperationArgs {
    /// File of options: TOML, each key named as its flag, which wins where both are given. SIGHUP
    /// has it read again.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check all options and what they name, print them as a file would hold them, and end.
    #[arg(long)]
    pub(crate) check: bool,
    /// Address to answer GET /metrics (Prometheus) and GET /healthz at [default: none].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    metrics: Option<SocketAddr>,
    /// Address to answer a live page at, with its figures as JSON at /live.json, and the metrics
    /// [default: none; where no address is given 127.0.0.1:9123].
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address,
          num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9123")]
    web: Option<SocketAddr>,
    /// File with the token that the live page asks for, a line of at least 16 bytes, closed to
    /// others: needed at an address that is not of this machine alone. It is read at the start.
    #[arg(long, value_name = "FILE", requires = "web")]
    web_token_file: Option<PathBuf>,
    /// How events are told on stderr.
    #[arg(long, value_enum, default_value_t = LogArg::Text)]
    pub(crate) log: LogArg,
    /// Give up what is not needed once the sockets are open: capabilities, files (Landlock) and
    /// system calls (seccomp). Auto does with what the kernel has; required ends without it.
    #[arg(long, value_enum, default_value_t = SandboxArg::Auto)]
    sandbox: SandboxArg,
    /// User to become once the sockets are open [default: stay the same].
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

impl From<LogArg> for Format {
    fn from(arg: LogArg) -> Self {
        match arg {
            LogArg::Text => Self::Text,
            LogArg::Json => Self::Json,
        }
    }
}

impl OperationArgs {
    #[allow(clippy::unnecessary_wraps, reason = "all subjects resolve alike")]
    pub(crate) fn resolve(self) -> Result<OperationConfig, crate::failure::Failure> {
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
            // Known when all options are.
            files: Vec::new(),
        })
    }
}
