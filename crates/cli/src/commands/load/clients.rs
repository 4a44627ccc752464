//! The flags of a load that look at single clients: how evenly they are answered, and what becomes
//! of well-behaved ones.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_load::beside::Manners;
use horolog_sys::netlink::Prefix;

use crate::values;

/// What is asked of single clients.
#[derive(Args, Debug, Default)]
pub(crate) struct ClientArgs {
    /// Count per client (8 bytes each) and say how evenly they are answered: the smallest, median
    /// and largest share of a client's requests, Jain's index, and clients that got nothing.
    #[arg(long, conflicts_with_all = ["random_sources", "profile", "overload"])]
    fairness: bool,
    /// Beside the load, let N clients with addresses of their own ask as seldom as they should, and
    /// say what share of their requests and of them a limiter hurts. They ask for what the load
    /// asks for, in NTP's basic mode or PTP over UDP.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000),
          conflicts_with_all = ["soak", "profile", "overload"])]
    well_behaved: Option<u32>,
    /// How often each of these clients asks.
    #[arg(long, value_name = "TIME", default_value = "16s", requires = "well_behaved",
          value_parser = values::long_duration)]
    well_behaved_interval: Duration,
    /// How many requests each of them sends at once.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "well_behaved",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    well_behaved_burst: u32,
    /// Where they come from [default: a part of the load's network that it does not use].
    #[arg(long, value_name = "NETWORK/BITS", requires = "well_behaved")]
    well_behaved_source: Option<Prefix>,
}

impl ClientArgs {
    /// Whether single clients are counted.
    pub(crate) const fn fairness(&self) -> bool {
        self.fairness
    }

    /// How well-behaved clients behave, where there are any.
    pub(crate) fn manners(&self) -> Option<Manners> {
        Some(Manners {
            clients: self.well_behaved?,
            interval: self.well_behaved_interval,
            burst: self.well_behaved_burst,
            network: self.well_behaved_source,
        })
    }
}
