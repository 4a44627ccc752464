//! Loss ratio and achieved rate, each defined once: a loss ratio never exceeds 1, and a rate counts
//! sent instead of planned requests.
//!
//! This module judges nothing: [`crate::search`] and the reader decide whether a loss is
//! acceptable.

/// Returns the share of `sent` requests that were lost, from 0 to 1; `None` if none was sent.
///
/// More losses than requests, as in inconsistent counts of a damaged file, count as 1.
#[must_use]
pub fn loss_ratio(sent: u64, lost: u64) -> Option<f64> {
    (sent > 0).then(|| lost.min(sent) as f64 / sent as f64)
}

/// Achieved rate of requests or other events, from the instants of the first and last one.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct AchievedRate(f64);

impl AchievedRate {
    /// Computes the rate of `count` events, the first at `first_ns` and the last at `last_ns` of
    /// one clock.
    ///
    /// There are n − 1 intervals between n events, so the rate is (n − 1) / (last − first).
    /// Dividing n by the planned duration would overstate the rate of a sender that stopped early.
    /// `None` for fewer than two events, or if no time passed between them.
    #[must_use]
    pub fn from_span(count: u64, first_ns: u64, last_ns: u64) -> Option<Self> {
        let intervals = count.checked_sub(1).filter(|&n| n > 0)?;
        let span_ns = last_ns.checked_sub(first_ns).filter(|&ns| ns > 0)?;
        Some(Self(intervals as f64 * 1e9 / span_ns as f64))
    }

    /// Returns the events per second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_intervals() {
        let rate = AchievedRate::from_span(1_001, 5_000, 5_000 + 1_000_000_000).unwrap();
        assert!((rate.per_second() - 1_000.0).abs() < 1e-9);
        assert_eq!(AchievedRate::from_span(1, 0, 10), None);
        assert_eq!(AchievedRate::from_span(0, 0, 10), None);
        assert_eq!(AchievedRate::from_span(5, 10, 10), None);
        assert_eq!(AchievedRate::from_span(5, 11, 10), None);
    }

    #[test]
    fn a_ratio_stays_within_its_range() {
        assert_eq!(loss_ratio(100, 0), Some(0.0));
        assert_eq!(loss_ratio(200, 1), Some(0.005));
        assert_eq!(loss_ratio(100, 100), Some(1.0));
        assert_eq!(loss_ratio(100, 168), Some(1.0));
        assert_eq!(loss_ratio(0, 1), None);
    }
}
