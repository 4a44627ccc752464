//! Sums over the flows of a row. Pure.

use horolog_record::{PathDirectionCounts, PathHostLosses, RowEndReason};
use horolog_time::{Monotonic, Timestamp};

use super::flow::UdpFlow;
use super::ping_pong::FlowOutcome;

/// Sums over flows of the values that [`super::flow_stats::FlowStats`] does not merge.
pub(super) struct FlowSums {
    pub(super) directions: Option<(PathDirectionCounts, PathDirectionCounts)>,
    pub(super) have_far_counts: bool,
    pub(super) host_losses: PathHostLosses,
    pub(super) load_received: u64,
    pub(super) started_at: Option<Timestamp<Monotonic>>,
    pub(super) ended_at: Timestamp<Monotonic>,
    pub(super) reply_traffic_class: Option<u8>,
    pub(super) end_reason: Option<RowEndReason>,
}

impl Default for FlowSums {
    fn default() -> Self {
        Self {
            directions: None,
            have_far_counts: true,
            host_losses: PathHostLosses::default(),
            load_received: 0,
            started_at: None,
            ended_at: Timestamp::from_ns(0),
            reply_traffic_class: None,
            end_reason: None,
        }
    }
}

impl FlowSums {
    /// Adds the outcome of another flow.
    pub(super) fn add(&mut self, outcome: &FlowOutcome, flow: &UdpFlow) {
        match outcome.stats.direction_counts() {
            Some((forward, backward)) => {
                let (there, back) = self.directions.get_or_insert_default();
                for (all, one) in [(there, forward), (back, backward)] {
                    all.lost += one.lost;
                    all.duplicate += one.duplicate;
                    all.reordered += one.reordered;
                }
            }
            None => self.have_far_counts = false,
        }
        let host_losses = &mut self.host_losses;
        if let Some(losses) = outcome.stats.far_losses {
            let limited = host_losses.far_limited.unwrap_or(0);
            host_losses.far_limited = Some(limited.saturating_add(losses.limited));
            // All flows share one socket of the far end, so each reports the same drops.
            host_losses.far_dropped = host_losses.far_dropped.max(Some(losses.dropped));
        }
        if let Some(dropped) = outcome.stats.dropped {
            host_losses.near_dropped =
                Some(host_losses.near_dropped.unwrap_or(0).saturating_add(dropped));
        }
        self.load_received += outcome.stats.far_counts.map_or(0, |counted| u64::from(counted.load));
        self.started_at = match (self.started_at, outcome.started_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.ended_at = self.ended_at.max(outcome.ended_at);
        self.reply_traffic_class = self.reply_traffic_class.or(flow.reply_traffic_class);
        self.end_reason = self.end_reason.or(outcome.end_reason);
    }
}
