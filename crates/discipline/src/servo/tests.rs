//! The servo on a clock that does what it is told.

use horolog_time::{NS_PER_S, SplitMix64, Utc};
use proptest::prelude::*;

use super::*;
use crate::{OscillatorModel, Pulse};

/// A clock of a constant frequency that carries out what it is told, and pulses of normal noise.
struct Plant {
    servo: Servo,
    random: SplitMix64,
    second: i64,
    offset: f64,
    frequency: f64,
    command: f64,
    noise: f64,
    /// What has been set by command or by hand, so that it is not in the monotonic clock.
    set: f64,
    /// Leap seconds inserted.
    leaps: i64,
    /// How long after its pulse a command is carried out, in seconds.
    hold_s: f64,
}

impl Plant {
    fn new(settings: ServoSettings, offset: f64, frequency: f64) -> Self {
        let (random, second) = (SplitMix64::new(7), 1_000);
        let servo = Servo::new(settings);
        Self {
            servo,
            random,
            second,
            offset,
            frequency,
            command: 0.0,
            noise: 100.0,
            set: offset,
            leaps: 0,
            hold_s: 0.0,
        }
    }

    fn steering(offset: f64, frequency: f64) -> Self {
        Self::new(ServoSettings::default(), offset, frequency)
    }

    fn now(&self) -> Timestamp<Monotonic> {
        Timestamp::from_ns(self.second * NS_PER_S + (self.offset - self.set) as i64)
    }

    /// The clock is set, by command or by somebody else.
    fn set(&mut self, step: f64) {
        self.offset += step;
        self.set += step;
    }

    fn pass(&mut self) {
        self.second += 1;
        self.offset += self.frequency + self.command;
    }

    fn obey(&mut self, command: Option<ServoCommand>) {
        if let Some(command) = command {
            self.command = command.frequency_ppb;
            self.set(command.step.unwrap_or_default().as_ns() as f64);
        }
    }

    /// A second with a pulse that is off by `error`, and the noise.
    fn pulse(&mut self, error: f64) -> ServoDecision {
        self.pass();
        let noise = (0..12).map(|_| self.random.next_f64()).sum::<f64>() - 6.0;
        let utc = Timestamp::<Utc>::from_timespec(1_800_000_000 + self.second - self.leaps, 0);
        // An edge that is late is late by both clocks; one that is later is labelled wrongly.
        let (late, wrong) = if error.abs() < 5e8 { (error, 0.0) } else { (0.0, error) };
        let late = Span::from_ns((late + self.noise * noise) as i64);
        let realtime = utc + Span::from_ns(self.offset as i64) + late;
        let utc = utc - Span::from_ns(wrong as i64);
        let pulse = Pulse { monotonic: self.now() + late, realtime, sequence: 0 };
        let done_at = pulse.monotonic + Span::from_ns((self.hold_s * 1e9) as i64);
        let decision = self.servo.process_pulse(&LabelledPulse { pulse, utc }, done_at);
        // Until then the clock runs on by the command before.
        self.offset += self.hold_s * self.command;
        self.obey(decision.command);
        self.offset -= self.hold_s * self.command;
        decision
    }

    fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.pulse(0.0);
        }
    }

    fn run_without_pulses(&mut self, seconds: u32) -> Option<ServoDecision> {
        let mut last = None;
        for _ in 0..seconds {
            self.pass();
            last = self.servo.tick(self.now());
            self.obey(last.and_then(|decision| decision.command));
        }
        last
    }
}

#[test]
fn a_clock_is_stepped_once_and_then_locked() {
    let mut plant = Plant::steering(3.7e18, 20_000.0);
    let steps = (0..60).filter(|_| plant.pulse(0.0).entry.step_ns.is_some()).count();
    assert_eq!((steps, plant.servo.state()), (1, SynchronisationState::Locked));
    assert!(plant.offset.abs() < 1_000.0, "{}", plant.offset);
}

#[test]
fn a_small_offset_is_slewed_from_the_start() {
    let mut plant = Plant::steering(9_000.0, 20_000.0);
    let has_stepped = (0..60).any(|_| plant.pulse(0.0).entry.step_ns.is_some());
    // By the time it is understood it has drifted on: what counts is the setting.
    let limit = Span::from_ms(1);
    let settings = ServoSettings { step_at_start: limit, ..ServoSettings::default() };
    let mut slewed = Plant::new(settings, 9_000.0, 20_000.0);
    assert!(has_stepped && !(0..60).any(|_| slewed.pulse(0.0).entry.step_ns.is_some()));
    assert!(slewed.offset.abs() < 300.0 && slewed.servo.state() == SynchronisationState::Locked);
}

#[test]
fn a_clock_that_is_not_steered_is_known_as_well() {
    let settings = ServoSettings { is_steering: false, ..ServoSettings::default() };
    let mut plant = Plant::new(settings, 5e9, -31_000.0);
    for _ in 0..100 {
        assert_eq!(plant.pulse(0.0).command, None);
    }
    let estimate = plant.servo.estimate(plant.now()).unwrap();
    assert!((estimate.offset.as_ns() as f64 - plant.offset).abs() < 200.0, "{estimate:?}");
    assert!((estimate.rate_ppb + 31_000.0).abs() < 30.0, "{estimate:?}");
    assert_eq!(plant.servo.state(), SynchronisationState::Locked);
    assert!(estimate.uncertainty_ns < 100.0);
}

#[test]
fn no_single_pulse_moves_the_estimate() {
    let mut plant = Plant::steering(0.0, 20_000.0);
    plant.run(200);
    for error in [1e3, -1e4, 1e5, -1e8, 1e9, 5e17, -5e17] {
        let decision = plant.pulse(error);
        assert_eq!(decision.entry.verdict, PulseVerdict::Outlier, "{error}");
        assert!(decision.command.is_some_and(|command| command.step.is_none()));
        assert!(decision.entry.offset_ns.unwrap().abs() < 300);
        (0..20).for_each(|_| {
            plant.pulse(0.0);
            assert!(plant.offset.abs() < 300.0, "{error} {}", plant.offset);
        });
    }
}

#[test]
fn a_changed_frequency_is_followed() {
    for change in [200.0, 5_000.0, -100_000.0] {
        let mut plant = Plant::steering(0.0, 20_000.0);
        plant.run(200);
        plant.frequency += change;
        plant.run(60);
        assert!(plant.offset.abs() < 500.0, "{change}: {}", plant.offset);
        assert_eq!(plant.servo.state(), SynchronisationState::Locked);
    }
}

#[test]
fn a_jump_of_the_pulses_is_believed_only_when_it_lasts() {
    let mut plant = Plant::steering(0.0, 20_000.0);
    plant.run(200);
    for pulse in 1..64 {
        let entry = plant.pulse(1e9).entry;
        assert!(entry.step_ns.is_none(), "{entry}");
        assert_eq!(entry.state == SynchronisationState::Unsynchronised, pulse >= 6, "{entry}");
    }
    let entry = plant.pulse(1e9).entry;
    assert!(entry.verdict == PulseVerdict::Acquired && entry.step_ns.is_some(), "{entry}");
    assert!((plant.offset + 1e9).abs() < 1_000.0, "{}", plant.offset);
}

#[test]
fn holdover_ends_and_pulses_that_come_back_are_followed_at_once() {
    let mut plant = Plant::steering(0.0, 20_000.0);
    plant.run(600);
    assert_eq!(plant.run_without_pulses(4), None, "a pulse may still come");
    let early = plant.run_without_pulses(10).unwrap();
    assert_eq!(early.entry.state, SynchronisationState::Holdover);
    let late = plant.run_without_pulses(3_600).unwrap();
    assert!(late.entry.uncertainty_ns > early.entry.uncertainty_ns);
    assert!(plant.offset.abs() < late.entry.uncertainty_ns.unwrap());
    assert_eq!(
        plant.run_without_pulses(2 * 86_400).unwrap().entry.state,
        SynchronisationState::Unsynchronised
    );
    plant.run(60);
    assert_eq!(plant.servo.state(), SynchronisationState::Locked);
    assert!(plant.offset.abs() < 300.0, "{}", plant.offset);
}

#[test]
fn a_command_counts_from_when_it_is_carried_out() {
    let mut plant = Plant::steering(2e6, 20_000.0);
    (plant.hold_s, plant.noise) = (0.4, 1.0);
    for _ in 0..60 {
        let entry = plant.pulse(0.0).entry;
        assert!(entry.innovation_ns.is_none_or(|ns| ns.abs() < 100.0), "{entry}");
    }
    assert!(plant.offset.abs() < 100.0 && plant.servo.state() == SynchronisationState::Locked);
}

#[test]
fn a_clock_that_is_lost_is_slewed_no_further() {
    let settings = ServoSettings { step_at_start: Span::from_ms(20), ..Default::default() };
    let mut plant = Plant::new(settings, 1e7, 20_000.0);
    plant.run(12);
    assert!(plant.command < -300_000.0, "it is slewed: {}", plant.command);
    for error in [3e7, -3e7].repeat(4) {
        plant.pulse(error);
    }
    assert_eq!(plant.servo.state(), SynchronisationState::Unsynchronised);
    assert!((plant.command + 20_000.0).abs() < 1_000.0, "{}", plant.command);
}

#[test]
fn holdover_ends_by_its_time_and_by_its_uncertainty() {
    let after = |holdover_max_s: i64, uncertainty_max_ns, seconds| {
        let settings = ServoSettings {
            holdover_max: Span::from_ns(holdover_max_s * NS_PER_S),
            holdover_uncertainty_max: Span::from_ns(uncertainty_max_ns),
            ..ServoSettings::default()
        };
        let mut plant = Plant::new(settings, 0.0, 20_000.0);
        plant.run(200);
        plant.run_without_pulses(seconds).unwrap().entry.state
    };
    assert_eq!(after(600, i64::MAX, 590), SynchronisationState::Holdover);
    assert_eq!(after(600, i64::MAX, 610), SynchronisationState::Unsynchronised);
    assert_eq!(after(86_400, 10_000, 100), SynchronisationState::Holdover);
    assert_eq!(after(86_400, 10_000, 600), SynchronisationState::Unsynchronised);
}

#[test]
fn no_command_is_beyond_what_a_clock_can_do() {
    let settings = ServoSettings {
        step_at_start: Span::from_ns(i64::MAX),
        step_later: None,
        ..ServoSettings::default()
    };
    let mut plant = Plant::new(settings, 3e9, 300_000.0);
    for _ in 0..500 {
        if let Some(command) = plant.pulse(0.0).command {
            assert!(command.frequency_ppb.abs() <= 500_000.0 && command.step.is_none());
        }
    }
    assert!(plant.offset < 3e9 - 150_000.0 * 400.0);
}

#[test]
fn the_noise_of_pulses_is_measured() {
    let mut plant = Plant::new(ServoSettings::default(), 0.0, 0.0);
    assert_eq!(plant.servo.noise_ns(), None);
    plant.run(300);
    let noise = plant.servo.noise_ns().unwrap();
    assert!((70.0..140.0).contains(&noise), "{noise}");
    plant.noise = 3_000.0;
    plant.run(600);
    let noise = plant.servo.noise_ns().unwrap();
    assert!((2_000.0..4_000.0).contains(&noise), "{noise}");
    assert_eq!(OscillatorModel::named("raspberry-pi"), Some(ServoSettings::default().oscillator));
}

#[test]
fn an_external_clock_step_is_measured_at_the_next_pulse() {
    for step in [3_600e9, -0.2e9, 50_000.0] {
        for is_steering in [true, false] {
            let settings = ServoSettings { is_steering, ..ServoSettings::default() };
            let mut plant = Plant::new(settings, 0.0, 5_000.0);
            plant.run(200);
            plant.set(step);
            let entry = plant.pulse(0.0).entry;
            assert_eq!(entry.verdict, PulseVerdict::Accepted, "{step} {entry}");
            let known = entry.offset_ns.unwrap() as f64 + entry.step_ns.unwrap_or(0) as f64;
            assert!((known - plant.offset).abs() < 1_000.0, "{step} {entry} {}", plant.offset);
        }
    }
}

#[test]
fn a_bad_pulse_is_rejected_even_after_an_external_clock_step() {
    let mut plant = Plant::steering(0.0, 5_000.0);
    plant.run(200);
    plant.set(50_000.0);
    assert_eq!(plant.pulse(200_000.0).entry.verdict, PulseVerdict::Outlier);
    plant.run(60);
    assert!(plant.offset.abs() < 500.0, "{}", plant.offset);
}

/// The kernel steps its clock, and UTC has made the same step: nothing has moved.
#[test]
fn a_leap_second_is_no_jump() {
    let mut plant = Plant::steering(0.0, 20_000.0);
    plant.run(200);
    plant.leaps = 1;
    let before = plant.offset;
    plant.run(1);
    assert!(
        (plant.offset - before).abs() < 300.0
            && plant.servo.state() == SynchronisationState::Locked
    );
    plant.run(100);
    assert!(plant.offset.abs() < 300.0, "{}", plant.offset);
}

/// In a leap second the pulses alone say whether the clock was set, and a bad one says nothing.
#[test]
fn a_leap_second_with_a_bad_pulse_is_no_jump_either() {
    let mut plant = Plant::steering(0.0, 20_000.0);
    plant.run(200);
    plant.leaps = 1;
    assert_eq!(plant.pulse(200_000.0).entry.verdict, PulseVerdict::Outlier);
    for _ in 0..20 {
        let entry = plant.pulse(0.0).entry;
        assert!(entry.verdict == PulseVerdict::Accepted && entry.step_ns.is_none(), "{entry}");
    }
}

#[test]
fn a_clock_is_not_locked_before_its_pulses_are_known() {
    let mut plant = Plant::steering(0.0, 20_000.0);
    while plant.servo.state() != SynchronisationState::Locked {
        plant.pulse(0.0);
        assert!(plant.second < 1_100);
    }
    assert!(plant.servo.noise_ns().is_some());
}

#[test]
fn stability_is_reported_for_the_clock_and_its_oscillator() {
    let mut plant = Plant::steering(0.0, 20_000.0);
    plant.run(2_000);
    let (clock, oscillator) = (
        plant.servo.stability().clock_allan_deviations(),
        plant.servo.stability().oscillator_allan_deviations(),
    );
    // White phase noise of 100 ns: the root of 3 times that, over the averaging time.
    for point in oscillator.iter().take(5) {
        let expected = 3_f64.sqrt() * 100.0 / point.samples as f64;
        assert!((point.deviation / expected - 1.0).abs() < 0.2, "{point:?}");
    }
    assert!((clock[0].deviation / oscillator[0].deviation - 1.0).abs() < 0.2, "{clock:?}");
}

proptest! {
    /// Whatever a device says, nothing overflows and no command is beyond the limits.
    #[test]
    fn no_input_is_too_much(
        pulses in prop::collection::vec((any::<i64>(), any::<i64>(), any::<i64>(), 0_u8..3), 0..40),
    ) {
        let mut servo = Servo::new(ServoSettings::default());
        let mut now = 0_i64;
        for (elapsed, realtime, utc, kind) in pulses {
            let step = if kind == 0 { elapsed & i64::MAX } else { 999_999_000 + (elapsed & 2_047) };
            now = now.saturating_add(step);
            let utc = Timestamp::from_ns(utc >> if kind == 2 { 0 } else { 30 });
            let realtime = Timestamp::from_ns(realtime >> if kind == 2 { 0 } else { 30 });
            let pulse = Pulse { monotonic: Timestamp::from_ns(now), realtime, sequence: 0 };
            let decision = servo.process_pulse(&LabelledPulse { pulse, utc }, pulse.monotonic);
            let command = decision.command.map_or(0.0, |command| command.frequency_ppb);
            prop_assert!(command.abs() <= 500_000.0, "{}", decision.entry);
            servo.tick(Timestamp::from_ns(now.saturating_add(elapsed & i64::MAX)));
        }
    }
}
