//! Flags of `horolog serve` for the timestamps of its sockets.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::Args;
use horolog_server::TimestampsConfig;

use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct TimestampsArgs {
    /// What timestamps requests and replies of interleaved mode at the sockets: 'kernel', 'none'
    /// (of replies), or the clock of an interface, as in 'eth0=hardware', which is switched on
    /// while the server runs; can be given more than once [default: kernel].
    #[arg(long, value_name = "[IF=]KIND", value_parser = kind)]
    timestamps: Vec<Kind>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    None,
    Kernel,
    Hardware(String),
}

fn kind(text: &str) -> Result<Kind, String> {
    match text.split_once('=') {
        None if text == "none" => Ok(Kind::None),
        None if text == "kernel" => Ok(Kind::Kernel),
        Some((interface, "hardware")) if !interface.is_empty() => {
            Ok(Kind::Hardware(interface.to_owned()))
        }
        _ => Err("write kernel, none or INTERFACE=hardware".to_owned()),
    }
}

impl TimestampsArgs {
    pub(crate) fn resolve(self) -> Result<TimestampsConfig, Failure> {
        let given = |kind: &Kind| self.timestamps.contains(kind);
        if given(&Kind::None) && given(&Kind::Kernel) {
            return Err(Failure::usage("--timestamps none and --timestamps kernel cannot both be"));
        }
        let transmit = !given(&Kind::None);
        let hardware = self.timestamps.into_iter().filter_map(|kind| match kind {
            Kind::Hardware(interface) => Some(interface),
            Kind::None | Kind::Kernel => None,
        });
        Ok(TimestampsConfig { transmit, hardware: hardware.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(kind("none"), Ok(Kind::None));
        assert_eq!(kind("eth0=hardware"), Ok(Kind::Hardware("eth0".to_owned())));
        for bad in ["", "hardware", "=hardware", "eth0=", "eth0=none", "Kernel"] {
            assert!(kind(bad).is_err(), "{bad}");
        }
    }
}
