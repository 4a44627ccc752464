//! Steering of the system clock: adjtimex(2) with changes. The only module that can;
//! [`crate::adjtimex`] only reads.

use std::io;

use horolog_time::{NS_PER_S, Span};

use crate::adjtimex::{NOMINAL_TICK_US, PendingLeap};
use crate::descriptor::check;

/// Maximum frequency correction by the kernel, in parts per billion.
pub const FREQUENCY_MAX_PPB: f64 = 500_000.0;

/// Status of the clock as other programs read it from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockStatus {
    /// True if the clock is right.
    pub synchronised: bool,
    /// The leap second at the end of this UTC day.
    pub leap: PendingLeap,
    /// Bound of the clock's error.
    pub maximum_error: Span,
    /// Estimate of the clock's error.
    pub estimated_error: Span,
    /// TAI minus UTC in seconds, if it is known.
    pub tai_offset_s: Option<i32>,
}

/// Corrects the frequency of the clock, in parts per billion of its own. The kernel's own loop
/// (`STA_PLL`) is switched off by [`set_status`].
///
/// # Errors
///
/// Without `CAP_SYS_TIME`.
pub fn set_frequency(ppb: f64) -> io::Result<()> {
    adjust(&mut frequency(ppb))
}

/// Sets the clock forward, or back, by this much.
///
/// # Errors
///
/// Without `CAP_SYS_TIME`, or if the kernel cannot represent the new time.
pub fn step(by: Span) -> io::Result<()> {
    adjust(&mut stepping(by))
}

/// Adjustments of an earlier program in the kernel that still move the clock in addition to its
/// frequency.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PendingAdjustments {
    /// Remainder of adjtime(3), in microseconds.
    pub adjtime_us: i64,
    /// Remainder of the slew by the kernel's own loop (`STA_PLL`), in its units.
    pub offset: i64,
    /// Difference of the tick from its nominal length, in microseconds.
    pub tick_us: i64,
}

/// Reads these adjustments without changing anything.
///
/// # Errors
///
/// None is known; a sandbox may forbid the call.
pub fn pending_adjustments() -> io::Result<PendingAdjustments> {
    let mut adjtime = libc::timex { modes: libc::ADJ_OFFSET_SS_READ, ..nothing() };
    adjust(&mut adjtime)?;
    let mut state = nothing();
    adjust(&mut state)?;
    Ok(PendingAdjustments {
        adjtime_us: adjtime.offset,
        offset: state.offset,
        tick_us: state.tick - NOMINAL_TICK_US,
    })
}

/// Clears all of these, so that the clock runs by its frequency alone. The kernel clears a
/// remainder of adjtime only by itself; it clears one of its loop while that is on
/// (`ntp_update_offset` in kernel/time/ntp.c), which [`set_status`] switches off again.
///
/// # Errors
///
/// Without `CAP_SYS_TIME`.
pub fn clear_adjustments() -> io::Result<()> {
    settling().iter_mut().try_for_each(adjust)
}

fn settling() -> [libc::timex; 2] {
    let adjtime = libc::timex { modes: libc::ADJ_OFFSET_SINGLESHOT, ..nothing() };
    let rest = libc::timex {
        modes: libc::ADJ_STATUS | libc::ADJ_OFFSET | libc::ADJ_TICK,
        status: libc::STA_PLL | libc::STA_FREQHOLD | libc::STA_UNSYNC,
        tick: NOMINAL_TICK_US,
        ..nothing()
    };
    [adjtime, rest]
}

/// Sets the status of the clock.
///
/// # Errors
///
/// Without `CAP_SYS_TIME`.
pub fn set_status(declaration: &ClockStatus) -> io::Result<()> {
    adjust(&mut declaring(declaration))?;
    match declaration.tai_offset_s {
        Some(seconds) => adjust(&mut tai(seconds)),
        None => Ok(()),
    }
}

fn adjust(change: &mut libc::timex) -> io::Result<()> {
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::adjtimex(change) }).map(drop)
}

fn nothing() -> libc::timex {
    // SAFETY: a plain C structure of numbers, for which all bytes zero is valid.
    unsafe { std::mem::zeroed() }
}

fn frequency(ppb: f64) -> libc::timex {
    /// Conversion factor: `timex.freq` counts in 2^-16 ppm.
    const UNITS_PER_PPB: f64 = 65_536.0 / 1_000.0;
    let ppb = if ppb.is_finite() { ppb.clamp(-FREQUENCY_MAX_PPB, FREQUENCY_MAX_PPB) } else { 0.0 };
    libc::timex {
        modes: libc::ADJ_FREQUENCY,
        freq: (ppb * UNITS_PER_PPB).round() as libc::c_long,
        ..nothing()
    }
}

fn stepping(by: Span) -> libc::timex {
    // Seconds towards the past, and nanoseconds in the field of microseconds.
    let time = libc::timeval {
        tv_sec: by.as_ns().div_euclid(NS_PER_S),
        tv_usec: by.as_ns().rem_euclid(NS_PER_S),
    };
    libc::timex { modes: libc::ADJ_SETOFFSET | libc::ADJ_NANO, time, ..nothing() }
}

fn declaring(declaration: &ClockStatus) -> libc::timex {
    let leap = match declaration.leap {
        PendingLeap::None => 0,
        PendingLeap::Insert => libc::STA_INS,
        PendingLeap::Delete => libc::STA_DEL,
    };
    let unsynchronised = if declaration.synchronised { 0 } else { libc::STA_UNSYNC };
    let microseconds = |span: Span| span.as_ns().max(0).div_euclid(1_000).saturating_add(1);
    libc::timex {
        modes: libc::ADJ_STATUS | libc::ADJ_MAXERROR | libc::ADJ_ESTERROR,
        status: leap | unsynchronised,
        maxerror: microseconds(declaration.maximum_error),
        esterror: microseconds(declaration.estimated_error),
        ..nothing()
    }
}

fn tai(seconds: i32) -> libc::timex {
    libc::timex { modes: libc::ADJ_TAI, constant: seconds.into(), ..nothing() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The requests to the kernel are checked, and never made: tests do not change the clock.

    #[test]
    fn frequencies_are_scaled_and_bounded() {
        assert_eq!(frequency(1_000.0).freq, 65_536);
        assert_eq!(frequency(-15.258_789).freq, -1_000);
        assert_eq!(frequency(1e9).freq, 32_768_000);
        assert_eq!(frequency(f64::NAN).freq, 0);
        assert_eq!(frequency(1.0).modes, libc::ADJ_FREQUENCY);
    }

    #[test]
    fn a_step_back_has_nanoseconds_that_count_forwards() {
        let back = stepping(Span::from_ns(-1));
        assert_eq!((back.time.tv_sec, back.time.tv_usec), (-1, 999_999_999));
        let on = stepping(Span::from_ns(2_500_000_000));
        assert_eq!((on.time.tv_sec, on.time.tv_usec), (2, 500_000_000));
        assert_eq!(on.modes, libc::ADJ_SETOFFSET | libc::ADJ_NANO);
    }

    #[test]
    fn what_is_left_over_is_ended_without_a_change_of_the_frequency() {
        let [adjtime, rest] = settling();
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
        let right = ClockStatus {
            synchronised: true,
            leap: PendingLeap::Insert,
            maximum_error: Span::from_ns(1_999),
            estimated_error: Span::from_ns(-5),
            tai_offset_s: Some(37),
        };
        let change = declaring(&right);
        assert_eq!((change.status, change.maxerror, change.esterror), (libc::STA_INS, 2, 1));
        let wrong = ClockStatus { synchronised: false, leap: PendingLeap::Delete, ..right };
        assert_eq!(declaring(&wrong).status, libc::STA_DEL | libc::STA_UNSYNC);
        assert_eq!((tai(37).modes, tai(37).constant), (libc::ADJ_TAI, 37));
    }
}
