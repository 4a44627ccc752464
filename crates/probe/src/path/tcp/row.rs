//! Values from `TCP_INFO`: the recorded subset, and the mechanism that holds data back. Pure.

use std::time::Duration;

use horolog_record::{
    Finding, FindingCode, HeldDataSampleCounts, PathEndFacts, Severity, TcpInfoSummary,
};
use horolog_sys::tcp::TcpInfo;

/// Read and write timeout after which a wait checks whether to end.
pub(crate) const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Wait after which the socket is sampled for held-back data: shorter than any TCP timer of the
/// kernel, longer than the round trip of a local network.
pub(crate) const fn held_sample_delay() -> Duration {
    Duration::from_millis(4)
}

/// Delay of the welcome after which the kernel does not take it for a reply in a dialogue: longer
/// than the delay of an acknowledgement.
pub(crate) const WELCOME_DELAY: Duration = Duration::from_millis(60);

/// Returns the recorded subset of `TCP_INFO`.
#[must_use]
pub(crate) fn tcp_info_summary(info: &TcpInfo) -> TcpInfoSummary {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    TcpInfoSummary {
        cwnd: info.cwnd.into(),
        mss_bytes: info.mss.into(),
        rtt_ns: ns(info.rtt),
        retransmitted: info.retransmitted.into(),
        ato_ns: ns(info.ato),
    }
}

/// Combines the values of several connections: sums of counts, maxima of other values; `None`
/// without connections.
#[must_use]
pub(crate) fn combined_tcp_info(all: &[TcpInfoSummary]) -> Option<TcpInfoSummary> {
    all.iter().copied().reduce(|one, other| TcpInfoSummary {
        cwnd: one.cwnd.max(other.cwnd),
        mss_bytes: one.mss_bytes.max(other.mss_bytes),
        rtt_ns: one.rtt_ns.max(other.rtt_ns),
        retransmitted: one.retransmitted.saturating_add(other.retransmitted),
        ato_ns: one.ato_ns.max(other.ato_ns),
    })
}

/// Adds a sample of a waiting socket: to the mechanism that holds its data back, or as delivered if
/// all data is acknowledged; in other states nothing is added.
pub(crate) fn add_held_sample(info: &TcpInfo, is_corked: bool, samples: &mut HeldDataSampleCounts) {
    if info.not_sent == 0 {
        samples.delivered += u64::from(info.unacknowledged == 0);
    } else if info.unacknowledged == 0 {
        // With a cork the data waits for more; without one it is queued in the host.
        samples.cork += u64::from(is_corked);
    } else if info.unacknowledged >= info.cwnd {
        samples.window += 1;
    } else if is_corked {
        samples.cork += 1;
    } else {
        samples.nagle += 1;
    }
}

/// Returns a finding if both ends have one host name and kernel, so that one host's CPUs did the
/// work of both.
pub(crate) fn same_host_finding(
    near: &PathEndFacts,
    far: Option<&PathEndFacts>,
) -> Option<Finding> {
    let far = far?;
    let is_same =
        near.hostname.is_some() && (&near.hostname, &near.kernel) == (&far.hostname, &far.kernel);
    is_same.then(|| Finding {
        code: FindingCode::SharedMachine,
        severity: Severity::Note,
        message: "Both ends run on one host: its CPUs did the work of both.".to_owned(),
        advice: "Measure between two hosts to test a network.".to_owned(),
        trial: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_that_hold_data_back_are_distinguished() {
        let counts_of = |not_sent, unacknowledged, cwnd, is_corked| {
            let mut samples = HeldDataSampleCounts::default();
            let info = TcpInfo { not_sent, unacknowledged, cwnd, ..TcpInfo::default() };
            add_held_sample(&info, is_corked, &mut samples);
            [samples.nagle, samples.window, samples.cork, samples.delivered]
        };
        assert_eq!(counts_of(10, 1, 10, false), [1, 0, 0, 0]);
        assert_eq!(counts_of(10, 3, 3, false), [0, 1, 0, 0]);
        assert_eq!(counts_of(10, 0, 10, true), [0, 0, 1, 0]);
        assert_eq!(counts_of(0, 0, 10, false), [0, 0, 0, 1]);
        assert_eq!(counts_of(0, 1, 10, false), [0; 4]);
    }

    #[test]
    fn several_connections_are_summed_up() {
        let one = TcpInfoSummary { cwnd: 10, retransmitted: 2, ..TcpInfoSummary::default() };
        let other = TcpInfoSummary { cwnd: 7, retransmitted: 3, ..TcpInfoSummary::default() };
        let both = combined_tcp_info(&[one, other]).unwrap();
        assert_eq!((both.cwnd, both.retransmitted), (10, 5));
        assert_eq!(combined_tcp_info(&[]), None);
    }
}
