//! Flags of `horolog serve` for interleaved mode.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::{Args, ValueEnum};
use horolog_server::{InterleavedBody, InterleavedConfig};

#[derive(Args, Debug)]
pub(crate) struct InterleavedArgs {
    /// Clients remembered for interleaved mode, 16 bytes each, rounded up to a power of two, up to
    /// 268435456; 0 turns it off [default: 1048576].
    #[arg(long, value_name = "N")]
    interleaved_clients: Option<usize>,
    /// What answers interleaved requests where XDP answers the others: XDP, the sockets, or the
    /// sockets where the hardware takes transmit timestamps and XDP elsewhere.
    #[arg(long, value_name = "BODY", value_enum, default_value_t = BodyArg::Auto)]
    interleaved: BodyArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BodyArg {
    Auto,
    Xdp,
    Socket,
}

impl InterleavedArgs {
    #[allow(clippy::unnecessary_wraps, reason = "every group of flags resolves alike")]
    pub(crate) fn resolve(self) -> Result<InterleavedConfig, crate::failure::Failure> {
        let default = InterleavedConfig::default();
        Ok(InterleavedConfig {
            clients: self.interleaved_clients.unwrap_or(default.clients),
            body: match self.interleaved {
                BodyArg::Auto => InterleavedBody::Auto,
                BodyArg::Xdp => InterleavedBody::Xdp,
                BodyArg::Socket => InterleavedBody::Socket,
            },
        })
    }
}
