//! Flags of `horolog serve` for interleaved mode.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::{Args, ValueEnum};
use horolog_server::{InterleavedConfig, InterleavedEngine};

#[derive(Args, Debug)]
pub(crate) struct InterleavedArgs {
    /// Clients remembered for interleaved mode, 16 bytes each, rounded up to a power of two, up to
    /// 268435456; 0 disables it [default: 1048576].
    #[arg(long, value_name = "N")]
    interleaved_clients: Option<usize>,
    /// Engine that answers interleaved requests if XDP answers the others. xdp: XDP; socket: the
    /// sockets; auto: the sockets if the hardware takes transmit timestamps, otherwise XDP.
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = InterleavedEngineArg::Auto)]
    interleaved: InterleavedEngineArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum InterleavedEngineArg {
    Auto,
    Xdp,
    Socket,
}

impl InterleavedArgs {
    #[allow(clippy::unnecessary_wraps, reason = "every group of flags resolves alike")]
    pub(crate) fn resolve(self) -> Result<InterleavedConfig, crate::failure::CommandFailure> {
        let default = InterleavedConfig::default();
        Ok(InterleavedConfig {
            clients: self.interleaved_clients.unwrap_or(default.clients),
            engine: match self.interleaved {
                InterleavedEngineArg::Auto => InterleavedEngine::Auto,
                InterleavedEngineArg::Xdp => InterleavedEngine::Xdp,
                InterleavedEngineArg::Socket => InterleavedEngine::Socket,
            },
        })
    }
}
