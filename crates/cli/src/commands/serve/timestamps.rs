//! Flags of `horolog serve` for the timestamps of its sockets.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::TimestampsConfig;

use crate::failure::CommandFailure;

#[derive(Args, Debug)]
pub(crate) struct TimestampsArgs {
    /// Source of the timestamps of requests, and of replies in interleaved mode, at the sockets:
    /// 'kernel', 'none' (no transmit timestamps), or an interface's clock, as in 'eth0=hardware',
    /// which takes timestamps while the server runs. Repeatable [default: kernel].
    #[arg(long, value_name = "[IF=]KIND", value_parser = kind)]
    timestamps: Vec<TimestampMethod>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum TimestampMethod {
    None,
    Kernel,
    Hardware(String),
}

fn kind(text: &str) -> Result<TimestampMethod, String> {
    match text.split_once('=') {
        None if text == "none" => Ok(TimestampMethod::None),
        None if text == "kernel" => Ok(TimestampMethod::Kernel),
        Some((interface, "hardware")) if !interface.is_empty() => {
            Ok(TimestampMethod::Hardware(interface.to_owned()))
        }
        _ => Err("expected kernel, none or INTERFACE=hardware".to_owned()),
    }
}

impl TimestampsArgs {
    pub(crate) fn resolve(self) -> Result<TimestampsConfig, CommandFailure> {
        let is_requested = |kind: &TimestampMethod| self.timestamps.contains(kind);
        if is_requested(&TimestampMethod::None) && is_requested(&TimestampMethod::Kernel) {
            return Err(CommandFailure::usage(
                "--timestamps none and --timestamps kernel exclude each other",
            ));
        }
        let transmit = !is_requested(&TimestampMethod::None);
        let hardware = self.timestamps.into_iter().filter_map(|kind| match kind {
            TimestampMethod::Hardware(interface) => Some(interface),
            TimestampMethod::None | TimestampMethod::Kernel => None,
        });
        Ok(TimestampsConfig { transmit, hardware: hardware.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(kind("none"), Ok(TimestampMethod::None));
        assert_eq!(kind("eth0=hardware"), Ok(TimestampMethod::Hardware("eth0".to_owned())));
        for bad in ["", "hardware", "=hardware", "eth0=", "eth0=none", "Kernel"] {
            assert!(kind(bad).is_err(), "{bad}");
        }
    }
}
