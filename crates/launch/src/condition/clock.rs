//! Whether the system clock is synchronised within a bound, by what the daemon that keeps it says,
//! or the kernel.

use horolog_source::{Fault, Look, Report, SourceSpec};
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_time::{Clock, Span};
use horolog_wire::ntp::Leap;

use super::{Sight, seconds};

/// Asks chronyd, ntpd or the kernel, as a server with the source `system` does.
pub(super) fn synchronised(within: Span) -> Sight {
    let look = Look {
        monotonic: MonotonicClock.now(),
        realtime_minus_monotonic: realtime_minus_monotonic().offset,
        kernel: kernel_clock().ok(),
        leaps_s: 0,
        leaps: horolog_source::KnownLeaps::default(),
    };
    let spec = "system".parse::<SourceSpec>().map_err(|error| Fault::Unusable(error.to_string()));
    let report = spec.and_then(|spec| spec.open(&[])).and_then(|mut source| source.poll(&look));
    judge(report, &look, within)
}

fn judge(report: Result<Option<Report>, Fault>, look: &Look, within: Span) -> Sight {
    let report = match report {
        Ok(Some(report)) => report,
        Ok(None) => return Sight::no("nobody answers for the clock"),
        Err(fault) => return Sight::no(fault.to_string()),
    };
    if report.leap == Leap::Unsynchronised {
        return Sight::no("the daemon that keeps the clock says that it is not synchronised");
    }
    let off_ns = report.offset.as_ns().unsigned_abs();
    let error_ns = off_ns.saturating_add(report.distance_at(look.monotonic).as_ns().unsigned_abs());
    let holds = error_ns <= within.as_ns().unsigned_abs();
    let seen = format!("within {}", seconds(std::time::Duration::from_nanos(error_ns)));
    Sight { holds, seen }
}

#[cfg(test)]
mod tests {
    use horolog_source::{KERNEL_STRATUM, Slew, UNDISCIPLINED};
    use horolog_time::Timestamp;

    use super::*;

    fn judged(leap: Leap, offset_us: i64, dispersion_us: i64) -> bool {
        let look = Look {
            monotonic: Timestamp::from_ns(0),
            realtime_minus_monotonic: Span::ZERO,
            kernel: None,
            leaps_s: 0,
            leaps: horolog_source::KnownLeaps::default(),
        };
        let report = Report {
            at: look.monotonic,
            offset: Span::from_ns(offset_us * 1_000),
            frequency_ppb: 0,
            slew: Slew::default(),
            uncertainty: Span::ZERO,
            leap,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: KERNEL_STRATUM,
            reference_id: UNDISCIPLINED,
            reference: Timestamp::from_ns(0),
            root_delay: Span::ZERO,
            root_dispersion: Span::from_ns(dispersion_us * 1_000),
        };
        judge(Ok(Some(report)), &look, Span::from_ms(1)).holds
    }

    #[test]
    fn offset_and_distance_count_together() {
        assert!(judged(Leap::None, 0, 1_000) && judged(Leap::Insert, -400, 600));
        assert!(!judged(Leap::None, -401, 600) && !judged(Leap::None, 0, 1_001));
        assert!(!judged(Leap::Unsynchronised, 0, 0));
    }

    #[test]
    fn nobody_who_answers_is_no_synchronised_clock() {
        let look = Look {
            monotonic: Timestamp::from_ns(0),
            realtime_minus_monotonic: Span::ZERO,
            kernel: None,
            leaps_s: 0,
            leaps: horolog_source::KnownLeaps::default(),
        };
        let fault = || Err(Fault::Silent("nothing".into()));
        assert!(!judge(fault(), &look, Span::from_ms(1_000)).holds);
        assert!(!judge(Ok(None), &look, Span::from_ms(1_000)).holds);
    }
}
