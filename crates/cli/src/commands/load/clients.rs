//! Flags of a load about single clients: the fairness among them, and the loss of compliant ones.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_load::compliant_clients::CompliantClientOptions;
use horolog_sys::netlink::Prefix;

use crate::values;

/// Measurements of single clients.
#[derive(Args, Debug, Default)]
pub(crate) struct ClientArgs {
    /// Count per client (8 bytes each) and report the fairness of the server: the smallest, median
    /// and largest share of a client's requests, Jain's index, and clients without replies.
    #[arg(long, conflicts_with_all = ["random_sources", "profile", "overload"])]
    fairness: bool,
    /// Run N low-rate clients with their own addresses beside the load, and report the share of
    /// them and of their requests that rate limiting affects. They send the same requests as the
    /// load, in NTP's basic mode or PTP over UDP.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000),
          conflicts_with_all = ["soak", "profile", "overload"])]
    compliant_clients: Option<u32>,
    /// Interval between the requests of each of these clients.
    #[arg(long, value_name = "TIME", default_value = "16s", requires = "compliant_clients",
          value_parser = values::long_duration)]
    compliant_interval: Duration,
    /// Requests that each of them sends at once.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "compliant_clients",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    compliant_burst: u32,
    /// Network of these clients [default: an unused part of the load's network].
    #[arg(long, value_name = "NETWORK/BITS", requires = "compliant_clients")]
    compliant_source: Option<Prefix>,
}

impl ClientArgs {
    /// Returns true if single clients are counted.
    pub(crate) const fn fairness(&self) -> bool {
        self.fairness
    }

    /// The options of compliant clients, if there are any.
    pub(crate) fn compliant_clients(&self) -> Option<CompliantClientOptions> {
        Some(CompliantClientOptions {
            clients: self.compliant_clients?,
            interval: self.compliant_interval,
            burst: self.compliant_burst,
            network: self.compliant_source,
        })
    }
}
