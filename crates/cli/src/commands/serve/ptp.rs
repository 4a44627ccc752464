//! Flags of `horolog serve` for PTP.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use clap::{Args, ValueEnum};
use horolog_ptp::{PtpConfig, PtpPortTransport, PtpProfile};
use horolog_wire::prefix::Prefix;

use crate::failure::CommandFailure;

/// Grandmaster: it announces the quality of the time source, yields to a better master, and never
/// follows one.
#[derive(Args, Debug)]
pub(crate) struct ServePtpArgs {
    /// Interface on which to act as a PTP grandmaster. Repeatable [default: none].
    #[arg(long = "ptp", value_name = "IF")]
    interfaces: Vec<String>,
    /// Transports of PTP: udp4, udp6, l2 (Ethernet), separated by commas.
    #[arg(
        long = "ptp-transport",
        value_enum,
        value_delimiter = ',',
        default_value = "udp4",
        value_name = "KIND"
    )]
    transports: Vec<PtpPortTransportArg>,
    /// PTP profile: default-e2e, default-p2p (peer delay) or g8275.2 (unicast only).
    #[arg(long = "ptp-profile", value_name = "NAME", default_value = "default-e2e")]
    profile: String,
    /// PTP domain [default: the profile's: 0; 44 in g8275.2].
    #[arg(long = "ptp-domain", value_name = "N", requires = "interfaces")]
    domain: Option<u8>,
    /// Value of priority1 in the best master clock algorithm, compared first; the lowest wins.
    #[arg(long = "ptp-priority1", value_name = "N", default_value_t = 128)]
    priority1: u8,
    /// Value of priority2 in the best master clock algorithm, compared among masters of the same
    /// quality; the lowest wins.
    #[arg(long = "ptp-priority2", value_name = "N", default_value_t = 128)]
    priority2: u8,
    /// Clock class while synchronised; clockAccuracy states the error bound [default: 248; with a
    /// reference clock (stratum 1) and an error bound of at most 10 ms: 6, in its holdover 7, or if
    /// TAI is unknown 13].
    #[arg(long = "ptp-clock-class", value_name = "N", requires = "interfaces")]
    clock_class: Option<u8>,
    /// Interval of Announce, log2 of seconds, -7 to 4 [default: the profile's: 1, that is 2 s; 0 in
    /// g8275.2].
    #[arg(
        long = "ptp-announce-interval",
        value_name = "LOG2",
        allow_negative_numbers = true,
        requires = "interfaces"
    )]
    announce_interval: Option<i8>,
    /// Interval of Sync, log2 of seconds, -7 to 4 [default: 0, that is 1 s].
    #[arg(
        long = "ptp-sync-interval",
        value_name = "LOG2",
        allow_negative_numbers = true,
        requires = "interfaces"
    )]
    sync_interval: Option<i8>,
    /// Minimum interval of a client's Delay_Req (logMinDelayReqInterval), log2 of seconds, -7 to 4
    /// [default: 0, that is 1 s].
    #[arg(
        long = "ptp-delay-interval",
        value_name = "LOG2",
        allow_negative_numbers = true,
        requires = "interfaces"
    )]
    delay_interval: Option<i8>,
    /// Write the time into each departing Sync in the NIC, instead of sending it in a Follow_Up.
    /// Requires --timestamps IF=hardware.
    #[arg(long = "ptp-one-step", requires = "interfaces")]
    one_step: bool,
    /// Answer NetSync Monitor, linuxptp's method to measure a master without following it. Each
    /// request is answered by up to three messages (amplification), so only clients that
    /// --ptp-unicast-allow permits are answered.
    #[arg(long = "ptp-netsync-monitor", requires = "interfaces")]
    monitor: bool,
    /// Limit on concurrent unicast grants, one for each client and kind of message; 0 denies all.
    #[arg(long = "ptp-unicast-grants", value_name = "N", default_value_t = 4_096)]
    unicast_grants: usize,
    /// Limit on messages per second granted to all clients together.
    #[arg(long = "ptp-unicast-rate", value_name = "RATE", default_value_t = 65_536)]
    unicast_rate: u32,
    /// Clients that may have unicast streams. Repeatable [default: those on the interface's own
    /// networks].
    #[arg(long = "ptp-unicast-allow", value_name = "PREFIX", requires = "interfaces")]
    unicast_allow: Vec<Prefix>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PtpPortTransportArg {
    Udp4,
    Udp6,
    L2,
}

impl ServePtpArgs {
    pub(crate) fn resolve(self) -> Result<PtpConfig, CommandFailure> {
        let profile: PtpProfile = self
            .profile
            .parse()
            .map_err(|error| CommandFailure::usage(format!("--ptp-profile: {error}")))?;
        let transports = self.transports.into_iter().map(|transport| match transport {
            PtpPortTransportArg::Udp4 => PtpPortTransport::Udp4,
            PtpPortTransportArg::Udp6 => PtpPortTransport::Udp6,
            PtpPortTransportArg::L2 => PtpPortTransport::Ethernet,
        });
        let config = PtpConfig {
            interfaces: self.interfaces,
            transports: transports.collect(),
            profile,
            domain: self.domain,
            priority1: self.priority1,
            priority2: self.priority2,
            clock_class: self.clock_class,
            log_announce: self.announce_interval,
            log_sync: self.sync_interval,
            log_delay_req: self.delay_interval,
            one_step: self.one_step,
            monitor: self.monitor,
            unicast_grants: self.unicast_grants,
            unicast_rate: self.unicast_rate,
            unicast_allow: self.unicast_allow,
        };
        // Defaults must pass without --ptp, because a file printed by --check contains them.
        if !config.is_on() && config != PtpConfig::default() {
            return Err(CommandFailure::usage(
                "a PTP option is given without --ptp: give the grandmaster interface, or omit \
                 the option",
            ));
        }
        Ok(config)
    }
}
