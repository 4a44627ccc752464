//! Flags of `horolog serve` for leap seconds, stepped or smeared.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_server::{LeapConfig, LeapSystem};

use crate::values;

#[derive(Args, Debug)]
pub(crate) struct LeapArgs {
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
    #[arg(long, value_enum, default_value_t = LeapSystemArg::Steps)]
    leap_system: LeapSystemArg,
    /// Duration of a smear, centred on the leap second [default: a day, noon to noon].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration)]
    leap_smear: Option<Duration>,
    /// Address and port to serve smeared time at. Repeatable. Requires --leap-file.
    #[arg(long, value_name = "ADDR:PORT", value_parser = values::socket_address)]
    smear_listen: Vec<SocketAddr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LeapSystemArg {
    Steps,
    Slews,
    Smears,
}

impl LeapArgs {
    /// Returns true if UTC is served by default: not if smeared time is.
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
                LeapSystemArg::Steps => LeapSystem::Steps,
                LeapSystemArg::Slews => LeapSystem::Slews,
                LeapSystemArg::Smears => LeapSystem::Smears,
            },
            smear: self.leap_smear.unwrap_or(default.smear),
            smear_listen: self.smear_listen,
        })
    }
}
