//! Simulated receiver with its line: arrival of pulses and sentences, with their faults.

use std::collections::VecDeque;

use horolog_time::{NS_PER_S, SplitMix64};

use super::noise::NormalGenerator;
use super::settings::SimulationSettings;

const MS: f64 = 1e6;
const YEAR_S: i64 = 365 * 86_400;
const ROLLOVER_S: i64 = 1_024 * 7 * 86_400;
/// Drift of the receiver's clock against UTC, in ns per second; it makes the quantisation error run
/// through all its values.
const RECEIVER_DRIFT_NS: f64 = 0.37;

/// Event of a simulation: an edge or a sentence that reaches the host, or a sampling of the errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SimulationEvent {
    /// An edge is timestamped.
    Pulse,
    /// A sentence that names this second.
    Sentence(i64),
    /// The clock's error is sampled.
    Sample,
}

/// State of the receiver, with separate random numbers for each purpose.
#[derive(Debug)]
pub(super) struct SimulatedReceiver {
    faults: SplitMix64,
    edges: SplitMix64,
    sentences: NormalGenerator,
    pulses: NormalGenerator,
    sawtooth: f64,
    /// Events that arrive in a later second than the one for which they were generated.
    delayed_events: VecDeque<(i64, SimulationEvent)>,
}

impl SimulatedReceiver {
    pub(super) fn new(seeds: &mut SplitMix64) -> Self {
        Self {
            faults: SplitMix64::new(seeds.next_u64()),
            edges: SplitMix64::new(seeds.next_u64()),
            sentences: NormalGenerator::new(seeds.next_u64()),
            pulses: NormalGenerator::new(seeds.next_u64()),
            sawtooth: 0.0,
            delayed_events: VecDeque::new(),
        }
    }

    /// Returns the events of the next second, in order.
    pub(super) fn events_of_second(
        &mut self,
        settings: &SimulationSettings,
        second: u64,
    ) -> Vec<(i64, SimulationEvent)> {
        let second_start_ns = second as i64 * NS_PER_S;
        let mut events: Vec<_> = self.delayed_events.drain(..).collect();
        events.push((
            second_start_ns + (self.edges.next_f64() * NS_PER_S as f64) as i64,
            SimulationEvent::Sample,
        ));
        let is_out = settings.outages.iter().any(|outage| outage.contains(second));
        // Drawn in any case, so that an outage changes no later random number.
        let pulses = self.pulse_events(settings, second_start_ns);
        let sentence = self.sentence_event(settings, second);
        if !is_out {
            events.extend(pulses);
            events.extend(sentence);
        }
        let is_later = |event: &(i64, SimulationEvent)| event.0 >= second_start_ns + NS_PER_S;
        self.delayed_events.extend(events.iter().copied().filter(is_later));
        events.retain(|event| !is_later(event));
        events.sort_by_key(|event| event.0);
        events
    }

    fn pulse_events(
        &mut self,
        settings: &SimulationSettings,
        second_start_ns: i64,
    ) -> Vec<(i64, SimulationEvent)> {
        let mut events = Vec::new();
        let distance = NS_PER_S / i64::from(settings.pulses_per_second.max(1));
        for pulse in 0..i64::from(settings.pulses_per_second) {
            let late = self.timestamp_delay_ns(settings);
            if self.faults.next_f64() >= settings.missing_pulses {
                events.push((second_start_ns + pulse * distance + late, SimulationEvent::Pulse));
            }
        }
        let at = (self.faults.next_f64() * NS_PER_S as f64) as i64;
        if self.faults.next_f64() < settings.false_pulses {
            events.push((second_start_ns + at, SimulationEvent::Pulse));
        }
        events
    }

    /// Returns the delay of an edge's timestamp, in ns; noise may make it negative.
    fn timestamp_delay_ns(&mut self, settings: &SimulationSettings) -> i64 {
        self.sawtooth = (self.sawtooth + RECEIVER_DRIFT_NS) % settings.quantisation_ns.max(1.0);
        let sawtooth = self.sawtooth - settings.quantisation_ns / 2.0;
        let latency = settings.latency;
        let draw = (self.edges.next_f64(), self.edges.next_f64());
        let tail = if draw.0 < latency.tail_share {
            -latency.tail_mean_ns * (1.0 - draw.1).ln()
        } else {
            0.0
        };
        let white = settings.pulse_noise_ns * self.pulses.next();
        (white + sawtooth + latency.constant_ns + tail).round() as i64
    }

    fn sentence_event(
        &mut self,
        settings: &SimulationSettings,
        second: u64,
    ) -> Option<(i64, SimulationEvent)> {
        let lag = settings.sentence_lag_ms + settings.sentence_jitter_ms * self.sentences.next();
        let mut at = second as i64 * NS_PER_S + (lag.max(0.0) * MS) as i64;
        let mut named = second as i64;
        let (chance, kind) = (self.faults.next_f64(), self.faults.next_below(8));
        if let Some((period, by)) = settings.spoof
            && period.contains(second)
        {
            named += by;
        }
        if chance < settings.bad_sentences {
            match kind {
                0 => named += 1,
                1 => named -= 1,
                2 => named += 60,
                3 => named -= YEAR_S,
                4 => named += ROLLOVER_S,
                5 => named -= ROLLOVER_S,
                6 => at += NS_PER_S,
                _ => return None,
            }
        }
        Some((at, SimulationEvent::Sentence(named)))
    }
}
