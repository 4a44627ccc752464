//! From the bounds of a change to a verdict.

use super::CompareVerdict;

/// How much more may be lost before anything is said: a share of what was sent. Below it a share
/// that doubles is of no interest.
const LOSS_STEP: f64 = 0.001;

/// The bounds of a change, as a share; what is larger is worse.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Change {
    /// Of what is better where it is larger.
    pub(super) fn reversed(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }
}

pub(super) fn judge(change: Option<Change>, threshold: f64) -> CompareVerdict {
    match change {
        None => CompareVerdict::NotEnough,
        Some(Change { low, .. }) if low > threshold => CompareVerdict::Worse,
        Some(Change { high, .. }) if high < -threshold => CompareVerdict::Better,
        Some(Change { low, high }) if low >= -threshold && high <= threshold => {
            CompareVerdict::Same
        }
        Some(_) => CompareVerdict::Unclear,
    }
}

/// Of the difference of two shares: the threshold is one of what was lost, and [`LOSS_STEP`] at
/// least.
pub(super) fn judge_loss(earlier: f64, change: Option<Change>, threshold: f64) -> CompareVerdict {
    judge(change, (earlier * threshold).max(LOSS_STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_bounds() {
        let of = |low, high| judge(Some(Change { low, high }), 0.1);
        assert_eq!(of(0.11, 0.5), CompareVerdict::Worse);
        assert_eq!(of(-0.5, -0.11), CompareVerdict::Better);
        assert_eq!(of(-0.1, 0.1), CompareVerdict::Same);
        assert_eq!(of(0.05, 0.2), CompareVerdict::Unclear);
        assert_eq!(of(-0.2, 0.2), CompareVerdict::Unclear);
        assert_eq!(judge(None, 0.1), CompareVerdict::NotEnough);
    }

    #[test]
    fn losses_too_small_to_matter_are_the_same() {
        let change = |low, high| Some(Change { low, high });
        assert_eq!(judge_loss(0.0, change(0.0001, 0.0009), 0.1), CompareVerdict::Same);
        assert_eq!(judge_loss(0.0, change(0.002, 0.003), 0.1), CompareVerdict::Worse);
        assert_eq!(judge_loss(0.5, change(0.002, 0.003), 0.1), CompareVerdict::Same);
    }
}
