//! Loss and rate arithmetic: small formulas that are easy to get subtly wrong (a loss above 100%, a
//! rate of planned instead of sent requests), each written once.
//!
//! This module judges nothing: [`crate::search`] and the reader decide whether a loss is
//! acceptable.

/// Returns the share of `sent` requests that were lost, from 0 to 1; `None` if none was sent.
///
/// More losses than requests (inconsistent counts, such as those of a damaged file) count as a loss
/// of all.
#[must_use]
pub fn loss_ratio(sent: u64, lost: u64) -> Option<f64> {
    (sent > 0).then(|| lost.min(sent) as f64 / sent as f64)
}

/// Achieved rate, from the instants of its first and last event.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// Computes the rate of `count` events, the first at `first_ns` and the last at `last_ns` of
    /// one clock.
    ///
    /// Between n events lie n − 1 intervals, so the rate is (n − 1) / (last − first). Dividing n by
    /// the planned duration instead would credit a sender that stopped early, and one interval too
    /// many. `None` for fewer than two events or no time between them.
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
        let rate = Rate::from_span(1_001, 5_000, 5_000 + 1_000_000_000).unwrap();
        assert!((rate.per_second() - 1_000.0).abs() < 1e-9);
        assert_eq!(Rate::from_span(1, 0, 10), None);
        assert_eq!(Rate::from_span(0, 0, 10), None);
        assert_eq!(Rate::from_span(5, 10, 10), None);
        assert_eq!(Rate::from_span(5, 11, 10), None);
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
