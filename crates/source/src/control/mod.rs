//! Steering of a clock behind a trait, and detection of other programs that steer the system clock:
//! this process does not steer it while another does, because the two would counteract each other.

mod steerer;

use std::io;

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock_steering::{self, DeclaredClockStatus};
use horolog_sys::explain::explain;
use horolog_time::Span;

pub use steerer::{ForeignSteeringProcess, find_steerer};

/// Maximum difference between the kernel's frequency and the one that was set, in parts per
/// billion: more than its unit of 2^-16 ppm, and less than any real correction.
const FREQUENCY_TOLERANCE_PPB: f64 = 0.05;

/// Clock that can be steered.
pub trait SteerableClock: Send {
    /// Returns the present frequency correction, in parts per billion.
    fn frequency_ppb(&mut self) -> io::Result<f64>;

    /// Sets the frequency correction, in parts per billion.
    fn set_frequency(&mut self, ppb: f64) -> io::Result<()>;

    /// Clears adjustments other than the frequency: pending slews and a tick that is not nominal.
    /// Returns true if there were any.
    fn clear_adjustments(&mut self) -> io::Result<bool>;

    /// Steps the clock forward by `by`.
    fn step(&mut self, by: Span) -> io::Result<()>;

    /// Sets the status that other programs read from the kernel.
    fn set_status(&mut self, declaration: &DeclaredClockStatus) -> io::Result<()>;
}

/// `CLOCK_REALTIME` of this host.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

impl SteerableClock for SystemClock {
    fn frequency_ppb(&mut self) -> io::Result<f64> {
        kernel_clock().map(|kernel| kernel.frequency_ppb)
    }

    fn set_frequency(&mut self, ppb: f64) -> io::Result<()> {
        clock_steering::set_frequency(ppb)
    }

    fn clear_adjustments(&mut self) -> io::Result<bool> {
        let is_pending =
            clock_steering::pending_adjustments()? != clock_steering::PendingAdjustments::default();
        if is_pending {
            clock_steering::clear_adjustments()?;
        }
        Ok(is_pending)
    }

    fn step(&mut self, by: Span) -> io::Result<()> {
        clock_steering::step(by)
    }

    fn set_status(&mut self, declaration: &DeclaredClockStatus) -> io::Result<()> {
        clock_steering::set_status(declaration)
    }
}

/// Reason why steering of a clock ended.
#[derive(Debug, thiserror::Error)]
pub enum ClockSteeringError {
    /// Another program has changed the frequency, to this value in ppb.
    #[error(
        "steering of the system clock stopped: another program set its frequency to {0:.3} ppb; \
         stop that program and restart the server, or use --no-clock-control"
    )]
    FrequencyChanged(f64),
    /// The clock cannot be steered.
    #[error("steering of the system clock stopped: {why}", why = explain(.0))]
    Failed(#[from] io::Error),
}

/// Exclusive steering of a clock; it ends when another program changes the frequency.
pub struct ClockSteering {
    clock: Box<dyn SteerableClock>,
    /// Last frequency set, or that of the first reading, in parts per billion; `None` before
    /// either.
    set_ppb: Option<f64>,
    is_cleared: bool,
}

impl ClockSteering {
    /// Creates the steering without changing anything.
    pub fn new(clock: impl SteerableClock + 'static) -> Self {
        Self { clock: Box::new(clock), set_ppb: None, is_cleared: false }
    }

    /// Sets the frequency correction relative to the nominal frequency, in parts per billion,
    /// limited to [`clock_steering::FREQUENCY_MAX_PPB`]; a value that is not finite is ignored. An
    /// error if another program has changed the frequency.
    pub fn set_frequency(&mut self, ppb: f64) -> Result<(), ClockSteeringError> {
        self.verify_frequency()?;
        let max_ppb = clock_steering::FREQUENCY_MAX_PPB;
        if !ppb.is_finite() {
            return Ok(());
        }
        let ppb = ppb.clamp(-max_ppb, max_ppb);
        self.clock.set_frequency(ppb)?;
        self.set_ppb = Some(ppb);
        Ok(())
    }

    /// Clears adjustments by other programs before the first command. If there were any, the clock
    /// now runs at another rate, and this returns its frequency correction; otherwise `None`.
    pub fn clear_adjustments(&mut self) -> Result<Option<f64>, ClockSteeringError> {
        if self.is_cleared {
            return Ok(None);
        }
        let before = self.verify_frequency()?;
        let was_pending = self.clock.clear_adjustments()?;
        self.is_cleared = true;
        if !was_pending {
            return Ok(None);
        }
        // The tick's share of the frequency is now part of the frequency correction.
        self.set_ppb = None;
        self.set_frequency(before)?;
        Ok(self.set_ppb)
    }

    /// Steps the clock forward by `by`, or backward if that is negative. An error if another
    /// program has changed the frequency.
    pub fn step(&mut self, by: Span) -> Result<(), ClockSteeringError> {
        self.verify_frequency()?;
        Ok(self.clock.step(by)?)
    }

    /// Sets the status that other programs read from the kernel.
    pub fn set_status(
        &mut self,
        declaration: &DeclaredClockStatus,
    ) -> Result<(), ClockSteeringError> {
        Ok(self.clock.set_status(declaration)?)
    }

    /// Returns the present frequency correction in ppb; an error if another program has changed it.
    pub fn verify_frequency(&mut self) -> Result<f64, ClockSteeringError> {
        let frequency_ppb = self.clock.frequency_ppb()?;
        let set = *self.set_ppb.get_or_insert(frequency_ppb);
        if (set - frequency_ppb).abs() > FREQUENCY_TOLERANCE_PPB {
            return Err(ClockSteeringError::FrequencyChanged(frequency_ppb));
        }
        Ok(frequency_ppb)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Changes made to a simulated clock.
    #[derive(Clone, Default, Debug)]
    pub(crate) struct SimulatedClockChanges {
        pub(crate) frequency_ppb: f64,
        pub(crate) stepped: Span,
        pub(crate) steps: u32,
        pub(crate) declared: Option<DeclaredClockStatus>,
        /// A part of the frequency that a tick makes, and a slew that goes on.
        pub(crate) tick_ppb: f64,
        pub(crate) slew_ppb: f64,
        pub(crate) is_forbidden: bool,
    }

    /// Simulated clock that records the changes made to it.
    #[derive(Clone, Default, Debug)]
    pub(crate) struct SimulatedSteerableClock(pub(crate) Arc<Mutex<SimulatedClockChanges>>);

    impl SimulatedSteerableClock {
        pub(crate) fn change(
            &self,
            change: impl FnOnce(&mut SimulatedClockChanges),
        ) -> io::Result<()> {
            let mut done = self.0.lock().unwrap();
            if done.is_forbidden {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            change(&mut done);
            Ok(())
        }
    }

    impl SteerableClock for SimulatedSteerableClock {
        fn frequency_ppb(&mut self) -> io::Result<f64> {
            let done = self.0.lock().unwrap();
            Ok(done.frequency_ppb + done.tick_ppb)
        }

        fn set_frequency(&mut self, ppb: f64) -> io::Result<()> {
            self.change(|done| done.frequency_ppb = ppb)
        }

        fn clear_adjustments(&mut self) -> io::Result<bool> {
            let mut was_left = false;
            self.change(|done| {
                was_left = done.tick_ppb != 0.0 || done.slew_ppb != 0.0;
                (done.tick_ppb, done.slew_ppb) = (0.0, 0.0);
            })?;
            Ok(was_left)
        }

        fn step(&mut self, by: Span) -> io::Result<()> {
            self.change(|done| (done.stepped, done.steps) = (done.stepped + by, done.steps + 1))
        }

        fn set_status(&mut self, declaration: &DeclaredClockStatus) -> io::Result<()> {
            self.change(|done| done.declared = Some(*declaration))
        }
    }

    #[test]
    fn corrections_keep_within_bounds() {
        let clock = SimulatedSteerableClock::default();
        clock.change(|done| done.frequency_ppb = 1_000.0).unwrap();
        let mut steering = ClockSteering::new(clock.clone());
        assert!((steering.verify_frequency().unwrap() - 1_000.0).abs() < 1e-9);
        steering.set_frequency(800.0).unwrap();
        steering.set_frequency(f64::NAN).unwrap();
        assert!((clock.0.lock().unwrap().frequency_ppb - 800.0).abs() < 1e-9);
        steering.set_frequency(1e9).unwrap();
        assert!((clock.0.lock().unwrap().frequency_ppb - 500_000.0).abs() < 1e-9);
        steering.step(Span::from_ms(3)).unwrap();
        assert_eq!(clock.0.lock().unwrap().stepped, Span::from_ms(3));
    }

    #[test]
    fn what_another_does_to_the_clock_ends_the_steering() {
        let clock = SimulatedSteerableClock::default();
        let mut steering = ClockSteering::new(clock.clone());
        steering.set_frequency(10.0).unwrap();
        clock.change(|done| done.frequency_ppb = 11.0).unwrap();
        let error = steering.set_frequency(1.0).unwrap_err();
        assert!(matches!(error, ClockSteeringError::FrequencyChanged(_)), "{error}");
        assert!(steering.step(Span::from_ms(1)).is_err());
        assert!((clock.0.lock().unwrap().frequency_ppb - 11.0).abs() < f64::EPSILON);
    }

    #[test]
    fn who_comes_before_the_first_command_is_noticed() {
        let clock = SimulatedSteerableClock::default();
        clock.change(|done| done.frequency_ppb = 5_000.0).unwrap();
        let mut steering = ClockSteering::new(clock.clone());
        assert!(steering.verify_frequency().is_ok());
        clock.change(|done| done.frequency_ppb = 5_001.0).unwrap();
        let error = steering.set_frequency(1.0).unwrap_err();
        assert!(matches!(error, ClockSteeringError::FrequencyChanged(_)), "{error}");
    }

    #[test]
    fn a_clock_that_may_not_be_set_is_reported() {
        let clock = SimulatedSteerableClock::default();
        clock.change(|done| done.is_forbidden = true).unwrap();
        let error = ClockSteering::new(clock).set_frequency(1.0).unwrap_err().to_string();
        assert!(error.starts_with("steering of the system clock stopped"), "{error}");
    }

    #[test]
    fn the_system_clock_reports_its_frequency() {
        // Asking changes nothing.
        assert!(SystemClock.frequency_ppb().unwrap().abs() <= clock_steering::FREQUENCY_MAX_PPB);
    }
}
