//! From what the kernel says of a socket to figures: what a record keeps of `TCP_INFO`, and what
//! holds data back. Pure.

use std::time::Duration;

use horolog_record::{Code, Finding, HeldSamples, PathEnd, Severity, TcpFigures};
use horolog_sys::tcp::TcpInfo;

/// How often a wait looks whether it is to end.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// After how long a wait is worth a look at what the socket holds: shorter than any timer of the
/// kernel's TCP, and longer than what a network on one's own ground takes.
pub(crate) const fn observe_wait() -> Duration {
    Duration::from_millis(4)
}

/// After so long without a segment the kernel takes what is sent for no answer: longer than the
/// time for which it delays an acknowledgement.
pub(crate) const SETTLE: Duration = Duration::from_millis(60);

/// What a record keeps of a connection.
#[must_use]
pub(crate) fn figures(info: &TcpInfo) -> TcpFigures {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    TcpFigures {
        cwnd: info.cwnd.into(),
        mss_bytes: info.mss.into(),
        rtt_ns: ns(info.rtt),
        retransmitted: info.retransmitted.into(),
        ato_ns: ns(info.ato),
    }
}

/// Figures of several connections as one: sums of what is counted, the largest of what is not.
#[must_use]
pub(crate) fn together(all: &[TcpFigures]) -> Option<TcpFigures> {
    all.iter().copied().reduce(|one, other| TcpFigures {
        cwnd: one.cwnd.max(other.cwnd),
        mss_bytes: one.mss_bytes.max(other.mss_bytes),
        rtt_ns: one.rtt_ns.max(other.rtt_ns),
        retransmitted: one.retransmitted.saturating_add(other.retransmitted),
        ato_ns: one.ato_ns.max(other.ato_ns),
    })
}

/// Counts what a socket that waits holds back, and by what.
pub(crate) fn held(info: &TcpInfo, is_corked: bool, samples: &mut HeldSamples) {
    if info.not_sent == 0 {
        samples.delivered += u64::from(info.unacknowledged == 0);
    } else if info.unacknowledged == 0 {
        // Under a cork it waits for more; without one, for its turn in a queue.
        samples.cork += u64::from(is_corked);
    } else if info.unacknowledged >= info.cwnd {
        samples.window += 1;
    } else if is_corked {
        samples.cork += 1;
    } else {
        samples.nagle += 1;
    }
}

/// Says so where both ends share a machine: its processors did the work of both.
pub(crate) fn same_machine(near: &PathEnd, far: Option<&PathEnd>) -> Option<Finding> {
    let far = far?;
    let is_same = near.node.is_some() && (&near.node, &near.kernel) == (&far.node, &far.kernel);
    is_same.then(|| Finding {
        code: Code::SharedMachine,
        severity: Severity::Note,
        message: "Both ends are on one machine: its processors did the work of both.".to_owned(),
        advice: "Measure between two machines for what a network gives.".to_owned(),
        trial: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_data_back_is_told_apart() {
        let seen = |not_sent, unacknowledged, cwnd, is_corked| {
            let mut samples = HeldSamples::default();
            let info = TcpInfo { not_sent, unacknowledged, cwnd, ..TcpInfo::default() };
            held(&info, is_corked, &mut samples);
            [samples.nagle, samples.window, samples.cork, samples.delivered]
        };
        assert_eq!(seen(10, 1, 10, false), [1, 0, 0, 0]);
        assert_eq!(seen(10, 3, 3, false), [0, 1, 0, 0]);
        assert_eq!(seen(10, 0, 10, true), [0, 0, 1, 0]);
        assert_eq!(seen(0, 0, 10, false), [0, 0, 0, 1]);
        assert_eq!(seen(0, 1, 10, false), [0; 4]);
    }

    #[test]
    fn several_connections_are_summed_up() {
        let one = TcpFigures { cwnd: 10, retransmitted: 2, ..TcpFigures::default() };
        let other = TcpFigures { cwnd: 7, retransmitted: 3, ..TcpFigures::default() };
        let both = together(&[one, other]).unwrap();
        assert_eq!((both.cwnd, both.retransmitted), (10, 5));
        assert_eq!(together(&[]), None);
    }
}
