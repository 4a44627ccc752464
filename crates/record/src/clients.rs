//! How the clients of a trial fared one by one: how evenly replies were spread over them, and what
//! became of well-behaved ones among many others.

use horolog_stats::loss::loss_ratio;
use serde::{Deserialize, Serialize};

use crate::Distribution;

/// How evenly replies were spread over the clients of a trial. A client's share is the part of its
/// requests that was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Clients that asked.
    pub clients: u64,
    /// Those of them that got no reply at all.
    pub unanswered: u64,
    /// The smallest share.
    pub share_min: f64,
    /// The median share.
    pub share_median: f64,
    /// The largest share.
    pub share_max: f64,
    /// Jain's index of the shares (Jain, Chiu, Hawe, 1984): 1 where all are alike, 1/n where one of
    /// n clients has all; absent where nobody was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain_index: Option<f64>,
}

/// What became of clients that ask as seldom as they should, beside the load of the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WellBehaved {
    /// Such clients; each has an address of its own.
    pub clients: u64,
    /// Between the beginnings of two bursts of one client, in seconds.
    pub interval_s: f64,
    /// Requests in a burst.
    pub burst: u32,
    /// Requests that left.
    pub sent: u64,
    /// Valid replies within the time allowed.
    pub received: u64,
    /// `sent` less `received`.
    pub lost: u64,
    /// Replies that were not valid, such as kisses of death.
    pub invalid: u64,
    /// Clients that asked.
    pub clients_asking: u64,
    /// Those of them of which a request stayed without a valid reply in time.
    pub clients_hurt: u64,
    /// Round trip, from the intended send instant to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

impl WellBehaved {
    /// The share of their requests that stayed without a valid reply in time, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
    }
}
