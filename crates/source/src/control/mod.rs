//! Steering a clock behind a trait, and who else does so: two that steer one clock fight over it,
//! so nobody is steered here while another does.

mod steering;

use std::io;

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::clock_steering::{self, Declaration};
use horolog_time::Span;

pub use steering::{Steerer, who_steers};

/// How far the frequency that the kernel shows may be from the one that was set, in parts per
/// billion: more than its unit of 2^-16 ppm, and less than what anybody corrects by.
const SAME_FREQUENCY_PPB: f64 = 0.05;

/// A clock that can be steered.
pub trait ClockControl: Send {
    /// The correction of its frequency that is in force, in parts per billion.
    fn frequency_ppb(&mut self) -> io::Result<f64>;

    /// Corrects its frequency.
    fn set_frequency(&mut self, ppb: f64) -> io::Result<()>;

    /// Ends what the kernel slews it by beside its frequency; says whether there was something, or
    /// a part of the frequency that it counts elsewhere.
    fn settle(&mut self) -> io::Result<bool>;

    /// Sets it forward by this much.
    fn step(&mut self, by: Span) -> io::Result<()>;

    /// Says how right it is to whoever asks the system.
    fn declare(&mut self, declaration: &Declaration) -> io::Result<()>;
}

/// The system clock.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

impl ClockControl for SystemClock {
    fn frequency_ppb(&mut self) -> io::Result<f64> {
        kernel_clock().map(|kernel| kernel.frequency_ppb)
    }

    fn set_frequency(&mut self, ppb: f64) -> io::Result<()> {
        clock_steering::set_frequency(ppb)
    }

    fn settle(&mut self) -> io::Result<bool> {
        let is_left = clock_steering::leftovers()? != clock_steering::Leftovers::default();
        if is_left {
            clock_steering::settle()?;
        }
        Ok(is_left)
    }

    fn step(&mut self, by: Span) -> io::Result<()> {
        clock_steering::step(by)
    }

    fn declare(&mut self, declaration: &Declaration) -> io::Result<()> {
        clock_steering::declare(declaration)
    }
}

/// Why a clock is not steered any more.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Somebody else has changed its frequency.
    #[error(
        "somebody else has set the system clock's frequency to {0:.3} ppb, so it is not steered \
         any more; stop the other one and restart the server, or give --no-clock-control"
    )]
    Contested(f64),
    /// The clock cannot be steered.
    #[error("the system clock cannot be steered any more: {0}")]
    Failed(#[from] io::Error),
}

/// A clock that is steered by one alone: what another does to it ends the steering.
pub struct Steering {
    clock: Box<dyn ClockControl>,
    /// The frequency that was set last, or that was in force when it was asked for first.
    set_ppb: Option<f64>,
    is_settled: bool,
}

impl Steering {
    /// Nothing is changed yet.
    pub fn new(clock: impl ClockControl + 'static) -> Self {
        Self { clock: Box::new(clock), set_ppb: None, is_settled: false }
    }

    /// Corrects the frequency by this much in all, against the clock's nominal one.
    pub fn set_frequency(&mut self, ppb: f64) -> Result<(), ControlError> {
        self.uncontested()?;
        let most = clock_steering::FREQUENCY_MAX_PPB;
        if !ppb.is_finite() {
            return Ok(());
        }
        let ppb = ppb.clamp(-most, most);
        self.clock.set_frequency(ppb)?;
        self.set_ppb = Some(ppb);
        Ok(())
    }

    /// Before the first command, ends what another has left in the kernel. Where something was
    /// left, the clock goes otherwise than before, and this says by which frequency.
    pub fn settle(&mut self) -> Result<Option<f64>, ControlError> {
        if self.is_settled {
            return Ok(None);
        }
        let before = self.uncontested()?;
        let was_left = self.clock.settle()?;
        self.is_settled = true;
        if !was_left {
            return Ok(None);
        }
        // What a tick made of it is in the frequency now.
        self.set_ppb = None;
        self.set_frequency(before)?;
        Ok(self.set_ppb)
    }

    /// Sets the clock forward by this much.
    pub fn step(&mut self, by: Span) -> Result<(), ControlError> {
        self.uncontested()?;
        Ok(self.clock.step(by)?)
    }

    /// Says how right it is.
    pub fn declare(&mut self, declaration: &Declaration) -> Result<(), ControlError> {
        Ok(self.clock.declare(declaration)?)
    }

    /// The correction of the frequency in force, unless another has set it.
    pub fn uncontested(&mut self) -> Result<f64, ControlError> {
        let in_force = self.clock.frequency_ppb()?;
        let set = *self.set_ppb.get_or_insert(in_force);
        if (set - in_force).abs() > SAME_FREQUENCY_PPB {
            return Err(ControlError::Contested(in_force));
        }
        Ok(in_force)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What was done to a simulated clock.
    #[derive(Clone, Default, Debug)]
    pub(crate) struct Done {
        pub(crate) frequency_ppb: f64,
        pub(crate) stepped: Span,
        pub(crate) steps: u32,
        pub(crate) declared: Option<Declaration>,
        /// A part of the frequency that a tick makes, and a slew that goes on.
        pub(crate) tick_ppb: f64,
        pub(crate) slew_ppb: f64,
        pub(crate) is_forbidden: bool,
    }

    /// A clock that keeps what is done to it.
    #[derive(Clone, Default, Debug)]
    pub(crate) struct SimulatedControl(pub(crate) Arc<Mutex<Done>>);

    impl SimulatedControl {
        pub(crate) fn change(&self, change: impl FnOnce(&mut Done)) -> io::Result<()> {
            let mut done = self.0.lock().unwrap();
            if done.is_forbidden {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            change(&mut done);
            Ok(())
        }
    }

    impl ClockControl for SimulatedControl {
        fn frequency_ppb(&mut self) -> io::Result<f64> {
            let done = self.0.lock().unwrap();
            Ok(done.frequency_ppb + done.tick_ppb)
        }

        fn set_frequency(&mut self, ppb: f64) -> io::Result<()> {
            self.change(|done| done.frequency_ppb = ppb)
        }

        fn settle(&mut self) -> io::Result<bool> {
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

        fn declare(&mut self, declaration: &Declaration) -> io::Result<()> {
            self.change(|done| done.declared = Some(*declaration))
        }
    }

    #[test]
    fn corrections_keep_within_bounds() {
        let clock = SimulatedControl::default();
        clock.change(|done| done.frequency_ppb = 1_000.0).unwrap();
        let mut steering = Steering::new(clock.clone());
        assert!((steering.uncontested().unwrap() - 1_000.0).abs() < 1e-9);
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
        let clock = SimulatedControl::default();
        let mut steering = Steering::new(clock.clone());
        steering.set_frequency(10.0).unwrap();
        clock.change(|done| done.frequency_ppb = 11.0).unwrap();
        let error = steering.set_frequency(1.0).unwrap_err();
        assert!(matches!(error, ControlError::Contested(_)), "{error}");
        assert!(steering.step(Span::from_ms(1)).is_err());
        assert!((clock.0.lock().unwrap().frequency_ppb - 11.0).abs() < f64::EPSILON);
    }

    #[test]
    fn who_comes_before_the_first_command_is_noticed() {
        let clock = SimulatedControl::default();
        clock.change(|done| done.frequency_ppb = 5_000.0).unwrap();
        let mut steering = Steering::new(clock.clone());
        assert!(steering.uncontested().is_ok());
        clock.change(|done| done.frequency_ppb = 5_001.0).unwrap();
        let error = steering.set_frequency(1.0).unwrap_err();
        assert!(matches!(error, ControlError::Contested(_)), "{error}");
    }

    #[test]
    fn a_clock_that_may_not_be_set_says_so() {
        let clock = SimulatedControl::default();
        clock.change(|done| done.is_forbidden = true).unwrap();
        let error = Steering::new(clock).set_frequency(1.0).unwrap_err().to_string();
        assert!(error.starts_with("the system clock cannot be steered any more"), "{error}");
    }

    #[test]
    fn the_system_clock_tells_its_frequency() {
        // Asking changes nothing.
        assert!(SystemClock.frequency_ppb().unwrap().abs() <= clock_steering::FREQUENCY_MAX_PPB);
    }
}
