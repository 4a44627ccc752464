//! Steering of the system clock: adjtimex(2) with changes. No other module sets the clock;
//! [`crate::adjtimex`] only reads it.

use std::io;

use horolog_time::{NS_PER_S, Span};

use crate::adjtimex::{NOMINAL_TICK_US, PendingLeap};
use crate::descriptor::check;

/// Largest frequency correction in parts per billion, the kernel's limit.
pub const FREQUENCY_MAX_PPB: f64 = 500_000.0;

/// Status of the clock as other programs read it from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeclaredClockStatus {
    /// True if the clock is synchronised (no `STA_UNSYNC`).
    pub synchronised: bool,
    /// Leap second at the end of this UTC day.
    pub leap: PendingLeap,
    /// Error bound of the clock (`maxerror`).
    pub maximum_error: Span,
    /// Estimated error of the clock (`esterror`).
    pub estimated_error: Span,
    /// TAI minus UTC in seconds; `None` leaves the kernel's value.
    pub tai_offset_s: Option<i32>,
}

/// Sets the frequency correction of the clock, in parts per billion, limited to
/// ±[`FREQUENCY_MAX_PPB`]; 0 if `ppb` is not finite. The kernel's own discipline loop (`STA_PLL`)
/// is switched off by [`set_status`].
///
/// # Errors
///
/// Without `CAP_SYS_TIME`.
pub fn set_frequency(ppb: f64) -> io::Result<()> {
    adjust(&mut frequency_request(ppb))
}

/// Steps the clock by `by`, forward if positive.
///
/// # Errors
///
/// Without `CAP_SYS_TIME`, or if the kernel cannot represent the new time.
pub fn step(by: Span) -> io::Result<()> {
    adjust(&mut step_request(by))
}

/// Adjustments by another program that are pending in the kernel and change the clock in addition
/// to its frequency correction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PendingAdjustments {
    /// Remainder of an adjtime(3) slew, in microseconds.
    pub adjtime_us: i64,
    /// Remainder of a slew by the kernel's discipline loop (`STA_PLL`), in units of `timex.offset`.
    pub offset: i64,
    /// Tick minus its nominal length, in microseconds.
    pub tick_us: i64,
}

/// Reads the pending adjustments without changing anything.
///
/// # Errors
///
/// None is known; a sandbox may forbid the call.
pub fn pending_adjustments() -> io::Result<PendingAdjustments> {
    let mut adjtime = libc::timex { modes: libc::ADJ_OFFSET_SS_READ, ..empty_request() };
    adjust(&mut adjtime)?;
    let mut state = empty_request();
    adjust(&mut state)?;
    Ok(PendingAdjustments {
        adjtime_us: adjtime.offset,
        offset: state.offset,
        tick_us: state.tick - NOMINAL_TICK_US,
    })
}

/// Clears the pending adjustments, so that only the frequency correction remains. The kernel clears
/// a remainder of adjtime(3) separately, and one of its discipline loop only while the loop is on
/// (`ntp_update_offset` in kernel/time/ntp.c). The loop stays on, and the clock declared
/// unsynchronised, until [`set_status`].
///
/// # Errors
///
/// Without `CAP_SYS_TIME`.
pub fn clear_adjustments() -> io::Result<()> {
    clearing_requests().iter_mut().try_for_each(adjust)
}

fn clearing_requests() -> [libc::timex; 2] {
    let adjtime = libc::timex { modes: libc::ADJ_OFFSET_SINGLESHOT, ..empty_request() };
    let rest = libc::timex {
        modes: libc::ADJ_STATUS | libc::ADJ_OFFSET | libc::ADJ_TICK,
        status: libc::STA_PLL | libc::STA_FREQHOLD | libc::STA_UNSYNC,
        tick: NOMINAL_TICK_US,
        ..empty_request()
    };
    [adjtime, rest]
}

/// Sets the status of the clock.
///
/// # Errors
///
/// Without `CAP_SYS_TIME`.
pub fn set_status(status: &DeclaredClockStatus) -> io::Result<()> {
    adjust(&mut status_request(status))?;
    match status.tai_offset_s {
        Some(seconds) => adjust(&mut tai_request(seconds)),
        None => Ok(()),
    }
}

fn adjust(change: &mut libc::timex) -> io::Result<()> {
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::adjtimex(change) }).map(drop)
}

fn empty_request() -> libc::timex {
    // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
    unsafe { std::mem::zeroed() }
}

fn frequency_request(ppb: f64) -> libc::timex {
    /// Conversion factor: `timex.freq` counts in 2^-16 ppm.
    const UNITS_PER_PPB: f64 = 65_536.0 / 1_000.0;
    let ppb = if ppb.is_finite() { ppb.clamp(-FREQUENCY_MAX_PPB, FREQUENCY_MAX_PPB) } else { 0.0 };
    libc::timex {
        modes: libc::ADJ_FREQUENCY,
        freq: (ppb * UNITS_PER_PPB).round() as libc::c_long,
        ..empty_request()
    }
}

fn step_request(by: Span) -> libc::timex {
    // The seconds are rounded down; the microseconds field holds nanoseconds (`ADJ_NANO`).
    let time = libc::timeval {
        tv_sec: by.as_ns().div_euclid(NS_PER_S),
        tv_usec: by.as_ns().rem_euclid(NS_PER_S),
    };
    libc::timex { modes: libc::ADJ_SETOFFSET | libc::ADJ_NANO, time, ..empty_request() }
}

fn status_request(status: &DeclaredClockStatus) -> libc::timex {
    let leap = match status.leap {
        PendingLeap::None => 0,
        PendingLeap::Insert => libc::STA_INS,
        PendingLeap::Delete => libc::STA_DEL,
    };
    let unsynchronised = if status.synchronised { 0 } else { libc::STA_UNSYNC };
    let microseconds = |span: Span| span.as_ns().max(0).div_euclid(1_000).saturating_add(1);
    libc::timex {
        modes: libc::ADJ_STATUS | libc::ADJ_MAXERROR | libc::ADJ_ESTERROR,
        status: leap | unsynchronised,
        maxerror: microseconds(status.maximum_error),
        esterror: microseconds(status.estimated_error),
        ..empty_request()
    }
}

fn tai_request(seconds: i32) -> libc::timex {
    libc::timex { modes: libc::ADJ_TAI, constant: seconds.into(), ..empty_request() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The requests to the kernel are checked, and never made: tests do not change the clock.

    #[test]
    fn frequencies_are_scaled_and_bounded() {
        assert_eq!(frequency_request(1_000.0).freq, 65_536);
        assert_eq!(frequency_request(-15.258_789).freq, -1_000);
        assert_eq!(frequency_request(1e9).freq, 32_768_000);
        assert_eq!(frequency_request(f64::NAN).freq, 0);
        assert_eq!(frequency_request(1.0).modes, libc::ADJ_FREQUENCY);
    }

    #[test]
    fn a_step_back_has_nanoseconds_that_count_forwards() {
        let back = step_request(Span::from_ns(-1));
        assert_eq!((back.time.tv_sec, back.time.tv_usec), (-1, 999_999_999));
        let on = step_request(Span::from_ns(2_500_000_000));
        assert_eq!((on.time.tv_sec, on.time.tv_usec), (2, 500_000_000));
        assert_eq!(on.modes, libc::ADJ_SETOFFSET | libc::ADJ_NANO);
    }

    #[test]
    fn what_is_left_over_is_ended_without_a_change_of_the_frequency() {
        let [adjtime, rest] = clearing_requests();
        assert_eq!((adjtime.modes, adjtime.offset), (libc::ADJ_OFFSET_SINGLESHOT, 0));
        assert_eq!(rest.modes & libc::ADJ_FREQUENCY, 0);
        assert_eq!((rest.offset, rest.tick), (0, 10_000));
        assert_eq!(
            rest.status & (libc::STA_PLL | libc::STA_FREQHOLD),
            rest.status ^ libc::STA_UNSYNC
        );
        // Asking changes nothing.
        assert!(pending_adjustments().unwrap().tick_us.abs() <= 1_000);
    }

    #[test]
    fn what_is_declared() {
        let right = DeclaredClockStatus {
            synchronised: true,
            leap: PendingLeap::Insert,
            maximum_error: Span::from_ns(1_999),
            estimated_error: Span::from_ns(-5),
            tai_offset_s: Some(37),
        };
        let change = status_request(&right);
        assert_eq!((change.status, change.maxerror, change.esterror), (libc::STA_INS, 2, 1));
        let wrong = DeclaredClockStatus { synchronised: false, leap: PendingLeap::Delete, ..right };
        assert_eq!(status_request(&wrong).status, libc::STA_DEL | libc::STA_UNSYNC);
        assert_eq!((tai_request(37).modes, tai_request(37).constant), (libc::ADJ_TAI, 37));
    }
}
