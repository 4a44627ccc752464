//! Record of a row from the outcomes of its flows. Pure.

use horolog_record::{
    Distribution, LiveCounts, LivePartSummary, PathDirectionCounts, PathHostLosses, PathLoad,
    PathRequestCounts, PathUdpRow, Percentiles, SignedDistribution, UdpRowEndReason,
};
use horolog_stats::Histogram;
use horolog_stats::loss::AchievedRate;
use horolog_time::{Monotonic, Span, Timestamp};

use super::flow::UdpFlow;
use super::flow_stats::FlowStats;
use super::options::UdpRowPlan;
use super::ping_pong::FlowOutcome;

/// Header lengths in bytes: IPv4 (RFC 791), IPv6 and its fragment header (RFC 8200), UDP (RFC 768).
const IPV4_BYTES: u64 = 20;
const IPV6_BYTES: u64 = 40;
const FRAGMENT_BYTES: u64 = 8;
const UDP_BYTES: u64 = 8;

/// Returns the number of IP packets of a datagram with `length` bytes of payload. Each fragment but
/// the last carries a multiple of 8 bytes.
pub(super) fn fragment_count(length: u64, mtu: u64, is_ipv6: bool) -> u64 {
    let (header, fragment) = if is_ipv6 { (IPV6_BYTES, FRAGMENT_BYTES) } else { (IPV4_BYTES, 0) };
    if length + UDP_BYTES + header <= mtu {
        return 1;
    }
    let room = mtu.saturating_sub(header + fragment) / 8 * 8;
    (length + UDP_BYTES).div_ceil(room.max(8))
}

/// Values of a row over all its flows, from which its record is made.
#[derive(Debug)]
pub(super) struct UdpRowOutcome {
    pub(super) stats: FlowStats,
    pub(super) directions: Option<(PathDirectionCounts, PathDirectionCounts)>,
    pub(super) host_losses: Option<PathHostLosses>,
    pub(super) load_received: Option<u64>,
    pub(super) send_late: Option<Histogram>,
    pub(super) duration: Span,
    /// Largest possible difference between the clocks of both ends in ns; `None` if unknown.
    pub(super) clock_error_ns: Option<u64>,
    pub(super) load: PathLoad,
    pub(super) reply_traffic_class: Option<u8>,
    pub(super) end_reason: Option<UdpRowEndReason>,
    pub(super) intended_rate: Option<f64>,
    pub(super) fragments: u64,
    pub(super) receives_class: bool,
}

/// Returns the record of a row.
pub(super) fn row_record(plan: &UdpRowPlan, outcome: UdpRowOutcome) -> PathUdpRow {
    let UdpRowOutcome { stats, duration, .. } = outcome;
    let counts = PathRequestCounts {
        lost: stats.counts.sent.saturating_sub(stats.counts.received),
        ..stats.counts
    };
    let rtt_ns = Distribution::from_histogram(&stats.rtt);
    let delay_ns = rtt_ns.as_ref().map(Distribution::halved);
    // One-way delays are valid if the clocks differ by at most half of the median delay.
    let is_known = |error: u64| delay_ns.as_ref().is_some_and(|delay| error <= delay.p50 / 2);
    let has_one_way = outcome.clock_error_ns.is_some_and(is_known);
    let signed =
        |recorder| if has_one_way { SignedDistribution::from_histogram(recorder) } else { None };
    let dscp = |class: Option<u8>| class.filter(|_| outcome.receives_class).map(|class| class >> 2);
    let (forward, backward) = outcome.directions.unzip();
    PathUdpRow {
        length: plan.length,
        fragments: outcome.fragments,
        duration_s: duration.as_ns() as f64 / 1e9,
        intended_rate: outcome.intended_rate,
        achieved_rate: achieved_rate(counts.sent, duration),
        load: PathLoad { arrived: outcome.load_received, ..outcome.load },
        counts,
        forward,
        backward,
        host_losses: outcome.host_losses,
        send_late_ns: outcome.send_late.as_ref().and_then(Distribution::from_histogram),
        forward_ns: signed(&stats.forward),
        backward_ns: signed(&stats.backward),
        far_ns: Distribution::from_histogram(&stats.far_residence),
        host_send_ns: Distribution::from_histogram(&stats.host_send),
        host_receive_ns: Distribution::from_histogram(&stats.host_receive),
        wire_ns: Distribution::from_histogram(&stats.wire),
        dscp_forward: dscp(stats.request_traffic_class),
        dscp_backward: dscp(outcome.reply_traffic_class),
        ended: outcome.end_reason,
        rtt_ns,
        delay_ns,
    }
}

fn achieved_rate(sent: u64, duration: Span) -> f64 {
    let ns = u64::try_from(duration.as_ns()).unwrap_or(0);
    AchievedRate::from_span(sent, 0, ns).map_or(0.0, AchievedRate::per_second)
}

/// Returns the row's name for the live view.
pub(super) fn row_name(plan: &UdpRowPlan) -> String {
    format!("{} bytes, R {}", plan.length, plan.load_ratio)
}

/// Returns the row's counts for the live view.
pub(super) fn row_counts(row: &PathUdpRow) -> LiveCounts {
    LiveCounts {
        sent: row.counts.sent,
        received: row.counts.received,
        late: row.counts.late,
        duplicate: row.counts.duplicate,
        invalid: row.counts.invalid,
        refused: row.counts.refused,
        ..LiveCounts::default()
    }
}

/// Returns the row's summary for the live view.
pub(super) fn row_summary(row: &PathUdpRow) -> LivePartSummary {
    LivePartSummary {
        intended_rate: row.intended_rate,
        achieved_rate: row.achieved_rate,
        duration_s: row.duration_s,
        sent: row.counts.sent,
        received: row.counts.received,
        lost: row.counts.lost,
        late: row.counts.late,
        invalid: row.counts.invalid,
        latency_ns: row.rtt_ns.as_ref().map(Percentiles::from_distribution),
        ..LivePartSummary::default()
    }
}

/// Sums over flows of the values that [`super::flow_stats::FlowStats`] does not merge.
pub(super) struct FlowSums {
    pub(super) directions: Option<(PathDirectionCounts, PathDirectionCounts)>,
    pub(super) have_far_counts: bool,
    pub(super) host_losses: PathHostLosses,
    pub(super) load_received: u64,
    pub(super) started_at: Option<Timestamp<Monotonic>>,
    pub(super) ended_at: Timestamp<Monotonic>,
    pub(super) reply_traffic_class: Option<u8>,
    pub(super) end_reason: Option<UdpRowEndReason>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_those_of_the_standards() {
        for (length, mtu, is_ipv6, expected) in [
            (1_472, 1_500, false, 1),
            (1_473, 1_500, false, 2),
            (2_000, 1_500, false, 2),
            (5_000, 1_500, false, 4),
            (65_507, 1_500, false, 45),
            (1_452, 1_500, true, 1),
            (1_453, 1_500, true, 2),
            // 1,448 of 1,452 bytes are a multiple of 8.
            (2_888, 1_500, true, 2),
            (2_889, 1_500, true, 3),
            (65_507, 65_536, false, 1),
        ] {
            assert_eq!(fragment_count(length, mtu, is_ipv6), expected, "{length} of {mtu}");
        }
        assert!(fragment_count(100, 0, true) > 1, "an MTU that cannot be divides nothing by zero");
    }

    #[test]
    fn one_way_delay_is_reported_if_the_clocks_agree_closely() {
        let outcome = |clock_error_ns| {
            let mut stats = FlowStats::new(0, Span::from_ms(10));
            stats.rtt.record(20_000);
            stats.forward.record(9_000);
            stats.counts.sent = 2;
            stats.counts.received = 1;
            UdpRowOutcome {
                stats,
                directions: None,
                host_losses: None,
                load_received: None,
                send_late: None,
                duration: Span::from_ms(1),
                clock_error_ns,
                load: PathLoad::default(),
                reply_traffic_class: Some(0xb8),
                end_reason: None,
                intended_rate: None,
                fragments: 1,
                receives_class: true,
            }
        };
        let plan = UdpRowPlan { length: 64, load_ratio: 0.0 };
        for (error, known) in [(Some(0), true), (Some(5_001), false), (None, false)] {
            assert_eq!(row_record(&plan, outcome(error)).forward_ns.is_some(), known, "{error:?}");
        }
        let row = row_record(&plan, outcome(None));
        assert_eq!((row.delay_ns.unwrap().min, row.dscp_backward), (10_000, Some(46)));
        assert_eq!((row.counts.lost, row.achieved_rate as u64), (1, 1_000));
    }
}
