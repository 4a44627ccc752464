//! State of the kernel's clock: adjtimex(2), read without changing anything. This module cannot set
//! the clock; [`crate::clock_steering`] can.

use std::io;

use horolog_time::Span;

use crate::descriptor::check;

/// Leap second announced to the kernel, at the end of this UTC day.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PendingLeap {
    /// No leap second.
    #[default]
    None,
    /// A second is inserted at the end of the day.
    Insert,
    /// The last second of the day is deleted.
    Delete,
}

/// Status of the kernel's clock discipline for `CLOCK_REALTIME`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KernelClockStatus {
    /// True if some program disciplines the clock and has declared it synchronised (no
    /// `STA_UNSYNC`).
    pub synchronised: bool,
    /// Pending leap second.
    pub leap: PendingLeap,
    /// True during an inserted leap second, in which the clock repeats the last second.
    pub is_leap_second: bool,
    /// Error bound of the clock (`maxerror`) as set by the disciplining program; it grows by 500
    /// ppm.
    pub maximum_error: Span,
    /// Estimated error of the clock (`esterror`) as set by the disciplining program.
    pub estimated_error: Span,
    /// TAI minus UTC in seconds; 0 if it was never set.
    pub tai_offset_s: i32,
    /// Frequency correction of the clock in parts per billion, the sum of `freq` and of a `tick`
    /// other than nominal.
    pub frequency_ppb: f64,
}

/// Reads the status of the kernel's clock discipline.
///
/// # Errors
///
/// None is known for a read-only request; a sandbox may forbid the call.
pub fn kernel_clock() -> io::Result<KernelClockStatus> {
    // SAFETY: a plain C structure of numbers, for which all bytes zero is valid; no mode bit is
    // set, so nothing is changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let phase = check(unsafe { libc::adjtimex(&raw mut state) })?;
    let clock = parse_state(&state);
    // The flag stays set until a program clears it; in these states the leap second has passed.
    let is_past = phase == libc::TIME_OOP || phase == libc::TIME_WAIT;
    let leap = if is_past { PendingLeap::None } else { clock.leap };
    Ok(KernelClockStatus { leap, is_leap_second: phase == libc::TIME_OOP, ..clock })
}

/// Nominal length of a tick in microseconds: 10^6 / `USER_HZ`, with `USER_HZ` = 100 (adjtimex(2)).
pub(crate) const NOMINAL_TICK_US: libc::c_long = 10_000;

/// Returns the frequency correction by a tick of this length, in parts per billion.
fn tick_ppb(tick_us: libc::c_long) -> f64 {
    if tick_us == 0 {
        // Not reported.
        return 0.0;
    }
    (tick_us - NOMINAL_TICK_US) as f64 / NOMINAL_TICK_US as f64 * 1e9
}

fn parse_state(state: &libc::timex) -> KernelClockStatus {
    /// Conversion factor: `timex.freq` counts in 2^-16 ppm.
    const PPB_PER_UNIT: f64 = 1_000.0 / 65_536.0;
    let is_set = |bit| state.status & bit != 0;
    KernelClockStatus {
        synchronised: !is_set(libc::STA_UNSYNC),
        leap: match (is_set(libc::STA_INS), is_set(libc::STA_DEL)) {
            (true, false) => PendingLeap::Insert,
            (false, true) => PendingLeap::Delete,
            _ => PendingLeap::None,
        },
        is_leap_second: false,
        maximum_error: Span::from_ns(state.maxerror.saturating_mul(1_000)),
        estimated_error: Span::from_ns(state.esterror.saturating_mul(1_000)),
        tai_offset_s: state.tai,
        frequency_ppb: state.freq as f64 * PPB_PER_UNIT + tick_ppb(state.tick),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers() {
        let clock = kernel_clock().unwrap();
        assert!(clock.maximum_error >= Span::ZERO, "{clock:?}");
        // 500 ppm by the frequency, and 10% by the tick.
        assert!(clock.frequency_ppb.abs() <= 100_500_000.0, "{clock:?}");
    }

    #[test]
    fn status_bits_are_distinguished() {
        // SAFETY: as in `kernel_clock`.
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        state.status = libc::STA_PLL | libc::STA_INS;
        state.maxerror = 16_000_000;
        state.freq = -65_536;
        let clock = parse_state(&state);
        assert!(clock.synchronised);
        assert_eq!(clock.leap, PendingLeap::Insert);
        assert_eq!(clock.maximum_error, Span::from_ms(16_000));
        assert!((clock.frequency_ppb - -1_000.0).abs() < f64::EPSILON);
        state.tick = 10_001;
        assert!((parse_state(&state).frequency_ppb - 99_000.0).abs() < 1e-6, "with the tick");
        state.status = libc::STA_UNSYNC | libc::STA_DEL;
        assert!(!parse_state(&state).synchronised);
        assert_eq!(parse_state(&state).leap, PendingLeap::Delete);
    }
}
