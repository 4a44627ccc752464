//! Measurement of one relay (highest rate without loss; delays and CPU time per copy at half of it)
//! and of the baseline without a relay.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use horolog_record::{NoRelayBaseline, RelayHalfRateTrial, RelayRepetition};
use horolog_report::units;
use horolog_stats::{GoalLossRatio, Histogram, Search, SearchConfig, SearchStep, TrialOutcome};
use horolog_sys::affinity;

use super::cost::CpuTimeByCore;
use super::testbed::{PacketSource, RelayTestbed, RelayTrialOutcome, TrialLoad};
use crate::ExperimentError;

/// First rate of a search, in packets per second; [`MIN_RATE`] and [`MAX_RATE`] bound it.
const START_RATE: f64 = 4_000.0;
const MIN_RATE: f64 = 500.0;
const MAX_RATE: f64 = 50e6;
/// Ratio of interval width to rate at which a search ends. A smaller one would be pointless: two
/// searches of the same relay differ by more.
const SEARCH_WIDTH: f64 = 0.02;
/// Least ratio of packets sent to packets intended with which a rate counts as achieved.
const ACHIEVED_SHARE_MIN: f64 = 0.995;
const INITIAL_DURATION: Duration = Duration::from_millis(50);
/// Least duration of trials that measure CPU time, which the kernel counts in ticks of 10 ms.
const CPU_TRIAL_DURATION_MIN: Duration = Duration::from_millis(500);

/// Returns the configuration of a search whose trials take about `time` in total.
pub(super) fn search_config(
    time: Duration,
    loss_ratio: f64,
) -> Result<SearchConfig, ExperimentError> {
    let goal = GoalLossRatio::new(loss_ratio).map_err(ExperimentError::options)?;
    let mut config = SearchConfig::new(goal, MIN_RATE, MAX_RATE);
    config.start_rate = START_RATE;
    config.width = SEARCH_WIDTH;
    config.initial_duration = INITIAL_DURATION;
    // With final trials of 1 s, the default, a search sends for about 10 s.
    config.scale((time / 10).max(INITIAL_DURATION));
    Ok(config)
}

/// Results of one repetition: search, and delays at half of the rate found.
pub(super) struct RelayRepetitionMeasurement {
    pub(super) repetition: RelayRepetition,
    pub(super) first_copy: Histogram,
    pub(super) last_copy: Histogram,
    /// True if some copy had the wrong length, or was a duplicate in place of a missing one.
    pub(super) has_wrong_copies: bool,
}

/// Testbed, source, load and search settings with which a running relay is measured.
pub(super) struct RelayMeasurementSetup<'a, 'b> {
    pub(super) testbed: &'a mut RelayTestbed<'b>,
    pub(super) source: &'a PacketSource,
    pub(super) load: TrialLoad,
    pub(super) config: SearchConfig,
    /// CPU time of receiving one copy, in ns, which is measured without a relay; `None` if unknown.
    pub(super) receive_cpu_ns: Option<f64>,
}

impl RelayMeasurementSetup<'_, '_> {
    fn run_trial(&mut self, load: &TrialLoad) -> Result<RelayTrialOutcome, ExperimentError> {
        let (rate, seconds) = (units::human_rate(load.rate), load.duration.as_secs_f64());
        let observer = self.testbed.observer;
        observer.activity(&format!("{rate} packets for {seconds:.2} s"));
        self.testbed.run_trial(self.source, None, load)
    }

    /// Searches for the highest rate without loss, and then measures delays and CPU time at half of
    /// it. `None` if the run was interrupted.
    pub(super) fn measure(
        &mut self,
    ) -> Result<Option<RelayRepetitionMeasurement>, ExperimentError> {
        let mut search = Search::new(self.config).map_err(ExperimentError::options)?;
        let (mut trials, mut disordered, mut has_wrong_copies) = (Vec::new(), 0, false);
        let outcome = loop {
            let (rate, duration) = match search.next() {
                SearchStep::Trial { rate, duration } => (rate, duration),
                SearchStep::Done(outcome) => break outcome,
            };
            let arrivals = self.run_trial(&TrialLoad { rate, duration, ..self.load })?;
            if self.testbed.observer.flow().is_break() {
                return Ok(None);
            }
            disordered += arrivals.disordered;
            has_wrong_copies |= arrivals.has_masked_loss || arrivals.damaged > 0;
            let outcome = trial_outcome(&arrivals, rate, duration, self.load.children);
            search.record(&outcome);
            trials.push((
                outcome,
                arrivals.send_rate * arrivals.copies as f64 / arrivals.sent.max(1) as f64,
            ));
        };
        let copies_per_s =
            outcome.lower.and_then(|rate| copies_per_s_at(rate, &trials)).unwrap_or(0.0);
        let mut measured = RelayRepetitionMeasurement {
            repetition: RelayRepetition {
                copies_per_s,
                lower: outcome.lower,
                upper: outcome.upper,
                end: outcome.reason.into(),
                trials: outcome.trials,
                disordered,
                half_rate: None,
            },
            first_copy: Histogram::new(),
            last_copy: Histogram::new(),
            has_wrong_copies,
        };
        if copies_per_s > 0.0 {
            let rate = copies_per_s / self.load.children as f64;
            self.measure_half_rate(rate / 2.0, &mut measured)?;
        }
        Ok(Some(measured).filter(|_| self.testbed.observer.flow().is_continue()))
    }

    /// Measures CPU time and delays at `rate` packets per second, in separate trials because
    /// measuring the delays takes CPU time.
    fn measure_half_rate(
        &mut self,
        rate: f64,
        measured: &mut RelayRepetitionMeasurement,
    ) -> Result<(), ExperimentError> {
        let duration = self.config.final_duration.max(CPU_TRIAL_DURATION_MIN);
        let load = TrialLoad { rate, duration, ..self.load };
        let arrivals = self.run_trial(&load)?;
        measured.repetition.half_rate = Some(RelayHalfRateTrial {
            rate: arrivals.send_rate,
            copies: arrivals.copies,
            lost: arrivals.lost,
            cpu_ns_per_copy: arrivals.cpu_ns.and_then(|ns| ns_per_item(ns, arrivals.copies)),
            receiving_ns_per_copy: self.receive_cpu_ns,
        });
        let duration = self.config.final_duration;
        let timed_arrivals =
            self.run_trial(&TrialLoad { duration, measures_delays: true, ..load })?;
        (measured.first_copy, measured.last_copy) =
            (timed_arrivals.first_copy, timed_arrivals.last_copy);
        Ok(())
    }
}

/// Returns the outcome of a trial for the search. Packets that the source could not send count as
/// lost: in-kernel copies are made on the source's core and keep it from sending, so that a rate
/// which is not achieved is not sustained by the relay.
fn trial_outcome(
    arrivals: &RelayTrialOutcome,
    rate: f64,
    duration: Duration,
    children: usize,
) -> TrialOutcome {
    let intended = rate * duration.as_secs_f64();
    // Rounding of the schedule may leave out one packet.
    let is_rate_missed = arrivals.sent as f64 + 1.0 < intended * ACHIEVED_SHARE_MIN;
    let missing = if is_rate_missed { intended as u64 - arrivals.sent } else { 0 };
    let copies = children as u64;
    TrialOutcome {
        intended_rate: rate,
        achieved_rate: rate,
        sent: (arrivals.sent + missing) * copies,
        // A duplicate counts as lost: in the count of copies it hides a missing one.
        lost: arrivals.lost + arrivals.disordered + arrivals.damaged + missing * copies,
        duration,
    }
}

/// Returns the median copies per second received in the longest trials at `rate` packets per
/// second; `None` without a trial at that rate. It may be below the intended rate, since the source
/// may take a little longer than intended.
fn copies_per_s_at(rate: f64, trials: &[(TrialOutcome, f64)]) -> Option<f64> {
    let at = || trials.iter().filter(|(trial, _)| is_same_rate(trial.intended_rate, rate));
    let longest = at().map(|(trial, _)| trial.duration).max()?;
    let mut rates: Vec<_> =
        at().filter(|(trial, _)| trial.duration == longest).map(|(_, rate)| *rate).collect();
    rates.sort_by(f64::total_cmp);
    Some(rates[rates.len() / 2])
}

fn is_same_rate(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * other
}

/// Measures the baseline without a relay: the source's highest rate, and the CPU time of receiving
/// a packet.
pub(super) fn measure_baseline(
    testbed: &mut RelayTestbed<'_>,
    source: &PacketSource,
    size: usize,
    time: Duration,
) -> Result<NoRelayBaseline, ExperimentError> {
    let (sink, attachment) = testbed.attach_direct_sink()?;
    let time = time.max(CPU_TRIAL_DURATION_MIN);
    let lanes = testbed.source_cores.len();
    let batch = testbed.batch_size(1);
    let max_load = TrialLoad {
        rate: MAX_RATE,
        duration: time,
        lanes,
        batch,
        children: 1,
        measures_delays: false,
    };
    let max_rate_arrivals = testbed.run_trial(source, Some(&sink), &max_load)?;
    drop((attachment, sink));
    Ok(NoRelayBaseline {
        size_bytes: size,
        source_threads: lanes,
        rate: max_rate_arrivals.send_rate * max_rate_arrivals.copies as f64
            / max_rate_arrivals.sent.max(1) as f64,
        receiving_frame_ns: max_rate_arrivals
            .cpu_ns
            .and_then(|ns| ns_per_item(ns, max_rate_arrivals.copies)),
        receiving_socket_ns: socket_receive_ns(testbed, size, time)?,
    })
}

/// Measures the delays of packets from the source to the relay's interface, without a relay.
pub(super) fn measure_direct_delay(
    testbed: &mut RelayTestbed<'_>,
    source: &PacketSource,
    load: &TrialLoad,
) -> Result<Histogram, ExperimentError> {
    let (sink, _attachment) = testbed.attach_direct_sink()?;
    let arrivals = testbed.run_trial(
        source,
        Some(&sink),
        &TrialLoad { children: 1, measures_delays: true, ..*load },
    )?;
    Ok(arrivals.first_copy)
}

/// Measures the CPU time in ns of receiving a packet that a UDP socket of the relay's host sent;
/// `None` if it cannot be measured.
fn socket_receive_ns(
    testbed: &mut RelayTestbed<'_>,
    size: usize,
    time: Duration,
) -> Result<Option<f64>, ExperimentError> {
    let mut payload = vec![0; size];
    let mark = testbed.expect_from_socket(size);
    payload[..mark.len()].copy_from_slice(&mark);
    let child = testbed.child_addresses(1)[0];
    let Some(core) = testbed.source_cores.last().copied() else { return Ok(None) };
    let Some(before) = CpuTimeByCore::read() else { return Ok(None) };
    let send = || -> std::io::Result<()> {
        affinity::pin_to_core(core)?;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(child)?;
        let begun = Instant::now();
        while begun.elapsed() < time {
            for _ in 0..64 {
                socket.send(&payload)?;
            }
        }
        Ok(())
    };
    testbed.relay_host().run(send)?.map_err(ExperimentError::host)?;
    let spent = CpuTimeByCore::read().map(|now| now.spent_since_ns(&before, &testbed.source_cores));
    let received = testbed.received_from_socket();
    Ok(spent.and_then(|ns| ns_per_item(ns, received)))
}

/// Returns `ns` divided by `count`; `None` if either is 0.
fn ns_per_item(ns: f64, count: u64) -> Option<f64> {
    (count > 0 && ns > 0.0).then(|| ns / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(sent: u64, rate: f64) -> RelayTrialOutcome {
        RelayTrialOutcome {
            sent,
            send_rate: rate,
            copies: sent * 4,
            ..RelayTrialOutcome::default()
        }
    }

    #[test]
    fn what_the_source_could_not_send_is_not_held() {
        let second = Duration::from_secs(1);
        let achieved = trial_outcome(&arrivals(998, 950.0), 1e3, second, 4);
        assert_eq!((achieved.sent, achieved.lost), (3_992, 0));
        let behind = trial_outcome(&arrivals(900, 900.0), 1e3, second, 4);
        assert_eq!((behind.sent, behind.lost), (4_000, 400));
        let unsent = trial_outcome(&arrivals(0, 0.0), 1e3, second, 4);
        assert_eq!((unsent.sent, unsent.lost), (4_000, 4_000));
    }

    #[test]
    fn rate_is_the_median_of_the_longest_trials() {
        let trial = |rate, ms| TrialOutcome {
            duration: Duration::from_millis(ms),
            ..trial_outcome(&arrivals(1, 1.0), rate, Duration::ZERO, 1)
        };
        let trials = [
            (trial(1e3, 50), 9e3),
            (trial(1e3, 200), 3.9e3),
            (trial(1e3, 200), 4e3),
            (trial(1e3, 200), 3e3),
            (trial(2e3, 200), 8e3),
        ];
        assert_eq!(
            (copies_per_s_at(1e3, &trials), copies_per_s_at(3e3, &trials)),
            (Some(3.9e3), None)
        );
    }

    #[test]
    fn duplicated_or_damaged_copies_count_as_lost() {
        let spoiled =
            RelayTrialOutcome { lost: 1, disordered: 2, damaged: 3, ..arrivals(1_000, 1e3) };
        assert_eq!(trial_outcome(&spoiled, 1e3, Duration::from_secs(1), 4).lost, 6);
    }

    #[test]
    fn search_has_the_requested_duration() {
        let config = search_config(Duration::from_secs(2), 0.0).unwrap();
        assert_eq!(config.final_duration, Duration::from_millis(200));
        let short = search_config(Duration::from_millis(100), 0.01).unwrap();
        assert_eq!(short.final_duration, INITIAL_DURATION);
        assert!(search_config(Duration::from_secs(2), 1.5).is_err());
    }
}
