//! Check that the system clock is synchronised within an error bound, as reported by its time
//! daemon or by the kernel.

use std::time::Duration;

use horolog_source::{ClockReadings, SourceError, SourceEstimate, SourceSpec};
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic};
use horolog_time::{Clock, Span};
use horolog_wire::ntp::LeapIndicator;

use super::CheckResult;

/// Checks that the offset of the system clock plus its root distance is at most `within`, as
/// chronyd, ntpd or the kernel reports them (source `system`). Fails if none answers or the clock
/// is not synchronised.
pub(super) fn check_clock(within: Span) -> CheckResult {
    let readings = ClockReadings {
        monotonic: ClockMonotonic.now(),
        realtime_minus_monotonic: realtime_minus_monotonic().offset,
        kernel: kernel_clock().ok(),
        leaps_s: 0,
        leaps: horolog_source::ServerLeapSeconds::default(),
    };
    let spec =
        "system".parse::<SourceSpec>().map_err(|error| SourceError::Unusable(error.to_string()));
    let estimate =
        spec.and_then(|spec| spec.open(&[])).and_then(|mut source| source.poll(&readings));
    evaluate(estimate, &readings, within)
}

fn evaluate(
    estimate: Result<Option<SourceEstimate>, SourceError>,
    readings: &ClockReadings,
    within: Span,
) -> CheckResult {
    let estimate = match estimate {
        Ok(Some(estimate)) => estimate,
        Ok(None) => return CheckResult::unsatisfied("no time daemon answers"),
        Err(error) => return CheckResult::unsatisfied(error.to_string()),
    };
    if estimate.leap == LeapIndicator::Unsynchronised {
        return CheckResult::unsatisfied(
            "the time daemon reports that the clock is not synchronised",
        );
    }
    let offset_ns = estimate.offset.as_ns().unsigned_abs();
    let error_ns = offset_ns
        .saturating_add(estimate.root_distance_at(readings.monotonic).as_ns().unsigned_abs());
    let holds = error_ns <= within.as_ns().unsigned_abs();
    let detail = format!("within {:#}", Span::from(Duration::from_nanos(error_ns)));
    CheckResult { holds, detail }
}

#[cfg(test)]
mod tests {
    use horolog_source::{KERNEL_STRATUM, Slew, UNDISCIPLINED_REFERENCE_ID};
    use horolog_time::Timestamp;

    use super::*;

    fn judged(leap: LeapIndicator, offset_us: i64, dispersion_us: i64) -> bool {
        let readings = ClockReadings {
            monotonic: Timestamp::from_ns(0),
            realtime_minus_monotonic: Span::ZERO,
            kernel: None,
            leaps_s: 0,
            leaps: horolog_source::ServerLeapSeconds::default(),
        };
        let report = SourceEstimate {
            at: readings.monotonic,
            offset: Span::from_ns(offset_us * 1_000),
            frequency_ppb: 0,
            slew: Slew::default(),
            uncertainty: Span::ZERO,
            leap,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: KERNEL_STRATUM,
            reference_id: UNDISCIPLINED_REFERENCE_ID,
            reference: Timestamp::from_ns(0),
            root_delay: Span::ZERO,
            root_dispersion: Span::from_ns(dispersion_us * 1_000),
            is_unconfirmed: false,
            host_clock: None,
        };
        evaluate(Ok(Some(report)), &readings, Span::from_ms(1)).holds
    }

    #[test]
    fn offset_and_distance_count_together() {
        assert!(judged(LeapIndicator::None, 0, 1_000) && judged(LeapIndicator::Insert, -400, 600));
        assert!(!judged(LeapIndicator::None, -401, 600) && !judged(LeapIndicator::None, 0, 1_001));
        assert!(!judged(LeapIndicator::Unsynchronised, 0, 0));
    }

    #[test]
    fn a_clock_is_not_synchronised_if_no_time_daemon_replies() {
        let readings = ClockReadings {
            monotonic: Timestamp::from_ns(0),
            realtime_minus_monotonic: Span::ZERO,
            kernel: None,
            leaps_s: 0,
            leaps: horolog_source::ServerLeapSeconds::default(),
        };
        let fault = || Err(SourceError::NoData("nothing".into()));
        assert!(!evaluate(fault(), &readings, Span::from_ms(1_000)).holds);
        assert!(!evaluate(Ok(None), &readings, Span::from_ms(1_000)).holds);
    }
}
