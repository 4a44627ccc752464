//! Sum over several flows of a row. Pure.

use horolog_record::{PathDirectionCounts, PathHostLosses, RowEndReason};
use horolog_time::{Monotonic, Timestamp};

use super::flow::UdpFlow;
use super::ping_pong::FlowOutcome;

/// Sums over several flows in addition to their stats.
pub(super) struct FlowSums {
    pub(super) directions: Option<(PathDirectionCounts, PathDirectionCounts)>,
    pub(super) all_counted: bool,
    pub(super) host_losses: PathHostLosses,
    pub(super) load_arrived: u64,
    pub(super) begun: Option<Timestamp<Monotonic>>,
    pub(super) over: Timestamp<Monotonic>,
    pub(super) class_back: Option<u8>,
    pub(super) ended: Option<RowEndReason>,
}

impl Default for FlowSums {
    fn default() -> Self {
        Self {
            directions: None,
            all_counted: true,
            host_losses: PathHostLosses::default(),
            load_arrived: 0,
            begun: None,
            over: Timestamp::from_ns(0),
            class_back: None,
            ended: None,
        }
    }
}

impl FlowSums {
    /// Adds the outcome of another flow.
    pub(super) fn add(&mut self, brought: &FlowOutcome, flow: &UdpFlow) {
        match brought.stats.directions() {
            Some((forward, backward)) => {
                let (there, back) = self.directions.get_or_insert_default();
                for (all, one) in [(there, forward), (back, backward)] {
                    all.lost += one.lost;
                    all.duplicate += one.duplicate;
                    all.reordered += one.reordered;
                }
            }
            None => self.all_counted = false,
        }
        let hosts = &mut self.host_losses;
        if let Some(losses) = brought.stats.far_losses {
            let limited = hosts.far_limited.unwrap_or(0);
            hosts.far_limited = Some(limited.saturating_add(losses.limited));
            // All flows arrive at one socket, whose drops each of them reports.
            hosts.far_dropped = hosts.far_dropped.max(Some(losses.dropped));
        }
        if let Some(dropped) = brought.stats.dropped {
            hosts.near_dropped = Some(hosts.near_dropped.unwrap_or(0).saturating_add(dropped));
        }
        self.load_arrived += brought.stats.counted.map_or(0, |counted| u64::from(counted.load));
        self.begun = match (self.begun, brought.begun) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.over = self.over.max(brought.over);
        self.class_back = self.class_back.or(flow.class_back);
        self.ended = self.ended.or(brought.ended);
    }
}
