//! Simulation of a clock that a receiver's pulses steer, and the record of its result. Nothing but
//! the time and facts about this host is read.

use std::collections::BTreeMap;

use horolog_discipline::OscillatorModel;
use horolog_discipline::simulation::{
    ReceiverOutageOutcome, SimulationOutcome, SimulationSample, SimulationSettings, simulate_while,
};
use horolog_record::{
    AllanDeviation, CLOCK_SCHEMA, ClockErrorRange, ClockSimulateResult, DisciplineMethod,
    DisciplineResult, Finding, FindingCode, Host, OscillatorParameters, PulseOutageResult,
    PulseOutcomeCounts, Severity, SimulatedPulseConditions, rfc3339_now,
};

use crate::ExperimentObserver;

/// Maximum number of intervals of the recorded error series: as many as a plot can resolve.
const INTERVALS_MAX: usize = 1_000;

/// Function that selects one discipline method's clock error, in ns, from a sample.
type ClockErrorSelector = fn(&SimulationSample) -> i64;

const METHODS: [(DisciplineMethod, ClockErrorSelector); 2] = [
    (DisciplineMethod::Servo, |sample| sample.steered_ns),
    (DisciplineMethod::SetAtPulse, |sample| sample.set_per_pulse_ns),
];

/// Runs the simulation; limits of the result are evaluated later. `command` is the command line.
pub fn run(
    settings: &SimulationSettings,
    command: Vec<String>,
    observer: &dyn ExperimentObserver,
) -> ClockSimulateResult {
    let started = rfc3339_now();
    let outcome = simulate_while(settings, || observer.flow().is_continue());
    simulation_record(settings, &outcome, started, command)
}

fn simulation_record(
    settings: &SimulationSettings,
    outcome: &SimulationOutcome,
    started: String,
    command: Vec<String>,
) -> ClockSimulateResult {
    let latency = settings.latency;
    ClockSimulateResult {
        schema: CLOCK_SCHEMA.to_owned(),
        started,
        command,
        host: Host::read(),
        seed: settings.seed,
        duration_s: outcome.samples.len() as u64,
        oscillator: oscillator_record(&settings.oscillator),
        conditions: SimulatedPulseConditions {
            pulse_noise_ns: settings.pulse_noise_ns,
            quantisation_ns: settings.quantisation_ns,
            latency_ns: latency.constant_ns,
            latency_tail: latency.tail_share,
            latency_tail_ns: latency.tail_mean_ns,
            pulses_per_second: settings.pulses_per_second,
            bad_sentences: settings.bad_sentences,
            false_pulses: settings.false_pulses,
            missing_pulses: settings.missing_pulses,
        },
        steered: settings.servo.is_steering,
        locked_after_s: outcome.locked_after_s().map(|second| second as u64),
        methods: METHODS
            .iter()
            .map(|(kind, error)| discipline_result(outcome, *kind, *error))
            .collect(),
        counts: PulseOutcomeCounts {
            pulses: owned_counts(&outcome.verdicts),
            pulse_rejects: owned_counts(&outcome.pulse_rejects),
            sentence_rejects: owned_counts(&outcome.sentence_rejects),
            wrong_labels: outcome.wrong_labels,
            steps: outcome.steps,
        },
        limits: Vec::new(),
        findings: never_locked_finding(outcome)
            .into_iter()
            .chain(interruption_finding(settings, outcome))
            .collect(),
    }
}

fn oscillator_record(oscillator: &OscillatorModel) -> OscillatorParameters {
    OscillatorParameters {
        name: oscillator.name.to_owned(),
        frequency_ppb: oscillator.frequency_ppb,
        white_fm_ppb: oscillator.white_fm_ppb,
        flicker_fm_ppb: oscillator.flicker_fm_ppb,
        random_walk_fm_ppb: oscillator.random_walk_fm_ppb,
        ageing_ppb_per_day: oscillator.ageing_ppb_per_day,
        temperature_ppb: oscillator.temperature.amplitude_ppb,
        temperature_period_s: oscillator.temperature.period_s,
    }
}

/// Returns the errors of one discipline method: summary, Allan deviation, outages and series.
fn discipline_result(
    outcome: &SimulationOutcome,
    kind: DisciplineMethod,
    error: ClockErrorSelector,
) -> DisciplineResult {
    let allan = outcome.allan_deviations(error).into_iter().map(|point| AllanDeviation {
        tau_s: point.samples as f64,
        // Converted from ns per second to a dimensionless fraction.
        deviation: point.deviation * 1e-9,
        terms: point.terms as u64,
    });
    let outage = |outage: ReceiverOutageOutcome| PulseOutageResult {
        begin_s: outage.period.begin_s,
        length_s: outage.period.length_s,
        error_max_ns: outage.error_max_ns.unsigned_abs(),
        recovered_after_s: outage.recovered_after_s,
    };
    DisciplineResult {
        kind,
        error_ns: outcome.error_summary(error),
        allan: allan.collect(),
        outages: outcome.outage_errors(error).into_iter().map(outage).collect(),
        series: error_ranges(&outcome.samples, error),
    }
}

/// Returns the smallest and largest error of each of at most [`INTERVALS_MAX`] equal intervals, in
/// ns.
fn error_ranges(samples: &[SimulationSample], error: ClockErrorSelector) -> Vec<ClockErrorRange> {
    let samples_per_interval = samples.len().div_ceil(INTERVALS_MAX).max(1);
    let interval_range = |(index, interval): (usize, &[SimulationSample])| {
        let errors = || interval.iter().map(error);
        Some(ClockErrorRange {
            begin_s: (index * samples_per_interval) as u64,
            min_ns: errors().min()?,
            max_ns: errors().max()?,
        })
    };
    samples.chunks(samples_per_interval).enumerate().filter_map(interval_range).collect()
}

fn owned_counts(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Returns a finding if the simulation was interrupted, otherwise `None`.
fn interruption_finding(
    settings: &SimulationSettings,
    outcome: &SimulationOutcome,
) -> Option<Finding> {
    let (simulated, planned) = (outcome.samples.len() as u64, settings.duration_s);
    (simulated < planned).then(|| Finding {
        code: FindingCode::Interrupted,
        severity: Severity::Note,
        message: format!("The simulation was ended after {simulated} of {planned} s."),
        advice: String::new(),
        trial: None,
    })
}

/// Returns a finding if the servo never locked, with the most frequent reason for rejected pulses;
/// `None` if it locked.
fn never_locked_finding(outcome: &SimulationOutcome) -> Option<Finding> {
    let most_frequent = outcome.pulse_rejects.iter().max_by_key(|(_, count)| **count);
    let rejects = most_frequent.map_or_else(String::new, |(name, count)| {
        format!(" ({count} pulses rejected, mostly for '{name}')")
    });
    outcome.locked_after_s().is_none().then(|| Finding {
        code: FindingCode::NeverLocked,
        severity: Severity::Error,
        message: format!("The clock never locked to its pulses{rejects}."),
        advice: "Check the simulated faults of pulses and sentences, and simulate at least a \
                 minute."
            .to_owned(),
        trial: None,
    })
}

#[cfg(test)]
mod tests {
    use horolog_discipline::simulation::simulate;

    use super::*;

    fn of(settings: &SimulationSettings) -> ClockSimulateResult {
        simulation_record(settings, &simulate(settings), String::new(), Vec::new())
    }

    #[test]
    fn both_methods_have_their_own_figures() {
        let result = of(&SimulationSettings { duration_s: 5_003, ..Default::default() });
        let [ours, theirs] = &result.methods[..] else { unreachable!("two methods") };
        let deviation = |method: &DisciplineResult| method.error_ns.unwrap().stddev;
        assert!(deviation(ours) < 200.0 && deviation(theirs) > 1_000.0);
        assert!(ours.allan[0].deviation < 1e-6 && theirs.allan[0].deviation > 1e-6);
        assert_eq!(ours.series.len(), 5_003_usize.div_ceil(6));
        assert_eq!(ours.series.last().unwrap().begin_s, 4_998);
        assert!(result.findings.is_empty());
    }

    #[test]
    fn interrupted_simulation_reports_its_simulated_time() {
        let settings = SimulationSettings { duration_s: 5_000, ..Default::default() };
        let mut seconds = 0;
        let outcome = simulate_while(&settings, || {
            seconds += 1;
            seconds <= 900
        });
        let result = simulation_record(&settings, &outcome, String::new(), Vec::new());
        assert_eq!(result.duration_s, 900);
        let [finding] = &result.findings[..] else { panic!("{:?}", result.findings) };
        assert_eq!(finding.code, FindingCode::Interrupted);
        assert!(finding.message.contains("900 of 5000 s"), "{}", finding.message);
    }

    #[test]
    fn a_clock_that_is_never_locked_is_an_error() {
        let settings =
            SimulationSettings { duration_s: 900, pulses_per_second: 2, ..Default::default() };
        let result = of(&settings);
        assert_eq!((result.locked_after_s, result.methods[0].error_ns), (None, None));
        assert!(result.findings[0].message.contains("'rate'"), "{:?}", result.findings);
    }
}
