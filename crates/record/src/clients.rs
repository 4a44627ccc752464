//! Results by client: fairness of the replies among the clients of a trial, and the losses of
//! compliant clients during a load.

use horolog_stats::loss::loss_ratio;
use serde::{Deserialize, Serialize};

use crate::Distribution;

/// Fairness of the replies among the clients of a trial. The share of a client is the ratio of its
/// answered requests to its requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientFairness {
    /// Clients that sent requests.
    pub clients: u64,
    /// Clients without any reply.
    pub unanswered: u64,
    /// Smallest share, from 0 to 1.
    pub share_min: f64,
    /// Median share.
    pub share_median: f64,
    /// Largest share.
    pub share_max: f64,
    /// Jain's fairness index of the shares (Jain, Chiu, Hawe, 1984): 1 if all are equal, 1/n if
    /// only one of n clients was answered; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jain_index: Option<f64>,
}

/// Results of low-rate clients that keep to the poll interval beside the load of the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompliantClients {
    /// Compliant clients; each has its own address.
    pub clients: u64,
    /// Time between the starts of two bursts of one client, in seconds.
    pub interval_s: f64,
    /// Requests in a burst.
    pub burst: u32,
    /// Requests sent.
    pub sent: u64,
    /// Valid replies within the timeout.
    pub received: u64,
    /// `sent` minus `received`.
    pub lost: u64,
    /// Invalid replies, such as kisses of death.
    pub invalid: u64,
    /// Clients that sent requests.
    pub clients_active: u64,
    /// Clients with at least one request without a valid reply in time.
    pub clients_affected: u64,
    /// Round trip in ns, from the intended send time to the receipt of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Distribution>,
}

impl CompliantClients {
    /// Returns the ratio of requests without a valid reply within the timeout, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        loss_ratio(self.sent, self.lost).unwrap_or(0.0)
    }
}
