//! A calibration among other sources, which vote: whatever becomes of its pulses, its sentences and
//! the clock, what is selected is right within its own bounds, and the clock is not led away.

use std::sync::{Arc, Mutex};

use super::tests::World;
use super::*;
use crate::calibration::config::tests::config;
use crate::pulse::replay::PulseReplay;
use crate::report::tests::report;
use crate::{
    PollableTimeSource, SelectionState, SelectorPollOutcome, SourceEstimate, SourceSelector,
};

type ScriptedResult = Arc<Mutex<Result<SourceEstimate, SourceError>>>;

/// A source that says what a test gives it, and remembers how it was judged.
struct ScriptedSource(&'static str, ScriptedResult, Arc<Mutex<Option<SelectionState>>>);

impl PollableTimeSource for ScriptedSource {
    fn name(&self) -> &str {
        self.0
    }

    fn poll(&mut self, _: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        self.1.lock().unwrap().clone().map(Some)
    }

    fn selection_changed(&mut self, standing: SelectionState) {
        *self.2.lock().unwrap() = Some(standing);
    }
}

/// A world with a calibration and two servers that know the time to `bound`.
struct Election {
    world: World,
    panel: SourceSelector,
    scripts: Vec<ScriptedResult>,
    judged: Arc<Mutex<Option<SelectionState>>>,
    bound: Span,
}

impl Election {
    fn new(world: World, bound: Span) -> Self {
        let nothing = || Arc::new(Mutex::new(Err(SourceError::NoData("not asked".into()))));
        let scripts: Vec<ScriptedResult> = (0..3).map(|_| nothing()).collect();
        let judged = Arc::<Mutex<Option<SelectionState>>>::default();
        let scripted_source = |(index, name)| -> Box<dyn PollableTimeSource> {
            let own = if index == 0 { Arc::clone(&judged) } else { Arc::default() };
            Box::new(ScriptedSource(name, Arc::clone(&scripts[index]), own))
        };
        let names = ["calibration", "first", "second"];
        let panel = SourceSelector::new(
            names.into_iter().enumerate().map(scripted_source).collect(),
            PlausibilityRuleParameters::default(),
        );
        Self { world, panel, scripts, judged, bound }
    }

    /// A second with these edges, and the vote at its end.
    fn run(&mut self, device: PulseReplay) -> SelectorPollOutcome {
        // The world's clock changes its rate at the start of a second.
        if let Some(standing) = self.judged.lock().unwrap().take() {
            self.world.calibrator.selection_changed(standing);
        }
        self.world.feed(device);
        let readings = self.world.readings(900);
        *self.scripts[0].lock().unwrap() = self.world.calibrator.estimate(&readings);
        let (off, bound) = (-self.world.ahead(900), self.bound);
        for (server, share) in self.scripts[1..].iter().zip([0.4, -0.6]) {
            let wrong = Span::from_ns((bound.as_ns() as f64 * share) as i64);
            let estimate = report((off + wrong).as_ns(), bound.as_ns());
            *server.lock().unwrap() = Ok(SourceEstimate { at: readings.monotonic, ..estimate });
        }
        let round = self.panel.poll(|| readings);
        if let Some(selected) = &round.selected {
            self.world.is_right(selected);
        }
        self.world.next();
        round
    }

    fn run_for(&mut self, seconds: u32) -> SelectorPollOutcome {
        let mut last = SelectorPollOutcome::default();
        for _ in 0..seconds {
            last = self.run(self.world.pulse());
        }
        last
    }
}

fn standing(round: &SelectorPollOutcome) -> SelectionState {
    round.states[0].state
}

#[test]
fn whatever_happens_what_is_selected_is_right() {
    for controls_clock in [false, true] {
        let config = CalibrationConfig { controls_clock, ..config(Some("/dev/pps0")) };
        let world = World::new(&config, Span::from_ms(3));
        let mut election = Election::new(world, Span::from_ms(20));
        assert_eq!(standing(&election.run_for(40)), SelectionState::Selected);
        // Pulses that are false, missing or double.
        for second in 0..60 {
            let pulse = election.world.pulse();
            let round = election.run(match second % 6 {
                1 => pulse.disturbed(1, Span::from_ns(70_000)),
                3 => pulse.thinned(1),
                _ => pulse,
            });
            assert!(round.selected.is_some());
        }
        // A receiver that has lost count.
        election.world.receiver_off_s = 1024 * 7 * 86_400;
        election.run_for(20);
        election.world.receiver_off_s = 0;
        election.run_for(20);
        // Somebody sets the clock, in holdover too.
        election.world.set = election.world.set + Span::from_ms(40);
        election.run_for(30);
        for second in 0..80 {
            if second == 30 {
                election.world.set = election.world.set - Span::from_ms(7);
            }
            assert!(election.run(PulseReplay::default()).selected.is_some(), "others are there");
        }
        assert_eq!(election.world.status().state, "unsynchronised");
        let back = election.run_for(100);
        assert_eq!(standing(&back), SelectionState::Selected, "{:?}", election.world.status());
    }
}

#[test]
fn a_calibration_that_is_voted_out_does_not_lead_the_clock_away() {
    let mut election = Election::new(World::steered(Span::ZERO), Span::from_ns(100_000));
    assert_eq!(standing(&election.run_for(60)), SelectionState::Selected);
    // All pulses are late by so much from here on; in the end the filter believes them.
    let late = Span::from_ns(800_000);
    let mut voted_out = 0;
    for _ in 0..200 {
        let pulse = election.world.pulse().disturbed(1, late);
        voted_out += u32::from(standing(&election.run(pulse)) == SelectionState::Falseticker);
    }
    assert!(voted_out > 100, "{voted_out}");
    let status = election.world.status();
    assert_eq!((status.controls_clock, status.control_suspended), (false, true));
    let done = election.world.control.0.lock().unwrap().clone();
    assert!(done.declared.is_some_and(|declared| !declared.synchronised));
    assert!((done.frequency_ppb + election.world.gains_ppb).abs() < 500.0, "no slew: {done:?}");
    election.run_for(200);
    assert_eq!(election.world.status().state, "locked");
    assert!(election.world.status().controls_clock);
    assert!(election.world.ahead(0).as_ns().abs() < 2_000, "{:?}", election.world.ahead(0));
}
