//! Stats of a run: start latency, outcome of the programs, findings.

use horolog_record::{
    AT_SCHEMA, AtOutcome, AtProgramResult, AtResult, AtTimescale, Distribution, Finding,
    FindingCode, Host, Severity, rfc3339_now,
};
use horolog_stats::Histogram;
use horolog_sys::adjtimex::kernel_clock;
use horolog_time::Span;

use super::latency_preparations::LatencyPreparations;
use super::{STEP_MIN, TIMER_SLACK_NS, TimedRunOptions, TimedRunOutcome};
use crate::instant::{InstantTimescale, TimescaleInstant};
use crate::program::{ProgramLaunchEvent, ProgramStartError};
use crate::signals::CaughtSignal;

pub(super) struct TimedRunStats {
    result: AtResult,
    woken: Histogram,
    started: Histogram,
    steps: (u64, Span),
    failed: Option<i32>,
    not_started: Option<String>,
}

impl TimedRunStats {
    pub(super) fn new(
        options: &TimedRunOptions,
        first: TimescaleInstant,
        preparations: &LatencyPreparations,
    ) -> Self {
        let program = |program: &crate::program::ProgramSpec| AtProgramResult {
            program: program.to_words(),
            runs: 0,
            failed: 0,
            last_status: None,
        };
        let result = AtResult {
            schema: AT_SCHEMA.to_owned(),
            started: rfc3339_now(),
            command: options.command.clone(),
            host: Host::read(),
            first: first.to_string(),
            timescale: match first.scale {
                InstantTimescale::Utc => AtTimescale::Utc,
                InstantTimescale::Tai => AtTimescale::Tai,
            },
            first_ns: first.ns,
            every_ns: options.every.map(|every| saturating_ns(every.as_nanos())),
            end: AtOutcome::Done,
            met: 0,
            missed: 0,
            scheduling: preparations.scheduling(),
            timer_slack_ns: TIMER_SLACK_NS.into(),
            head_start_ns: preparations.head_start().map(|time| saturating_ns(time.as_nanos())),
            memory_locked: preparations.memory_locked(),
            woken_late_ns: None,
            started_late_ns: None,
            programs: options.programs.iter().map(program).collect(),
            findings: unsynchronised_finding()
                .into_iter()
                .chain(preparations.findings().iter().cloned())
                .collect(),
        };
        let (woken, started) = (Histogram::new(), Histogram::new());
        Self { result, woken, started, steps: (0, Span::ZERO), failed: None, not_started: None }
    }

    /// Records the wake-up at an instant; a change of the system clock during the wait counts as a
    /// step if it is at least [`STEP_MIN`].
    pub(super) fn record_wake(&mut self, instant_ns: i64, now_ns: i64, clock_change: Span) {
        self.result.met += 1;
        self.woken.record(latency_ns(instant_ns, now_ns));
        if clock_change.as_ns().unsigned_abs() >= STEP_MIN.as_ns().unsigned_abs() {
            self.steps = (self.steps.0 + 1, self.steps.1 + clock_change);
        }
    }

    pub(super) fn record_start(&mut self, instant_ns: i64, now_ns: i64) {
        self.started.record(latency_ns(instant_ns, now_ns));
    }

    pub(super) fn record_missed(&mut self, instants: u64) {
        self.result.missed = self.result.missed.saturating_add(instants);
    }

    /// Records the exit status or the failed start of a program; other events are ignored.
    pub(super) fn record_last_event(&mut self, index: usize, event: &ProgramLaunchEvent) {
        match event {
            ProgramLaunchEvent::Ended(status) => self.record_exit(index, *status),
            ProgramLaunchEvent::NotStarted(failure) => self.record_not_started(index, failure),
            ProgramLaunchEvent::Cancelled
            | ProgramLaunchEvent::Woken(_)
            | ProgramLaunchEvent::Started(..) => {}
        }
    }

    fn record_exit(&mut self, index: usize, status: i32) {
        let Some(program) = self.result.programs.get_mut(index) else { return };
        program.runs += 1;
        program.last_status = Some(status);
        if status != 0 {
            program.failed += 1;
            self.failed.get_or_insert(status);
        }
    }

    fn record_not_started(&mut self, index: usize, failure: &ProgramStartError) {
        let Some(program) = self.result.programs.get_mut(index) else { return };
        program.failed += 1;
        program.last_status = Some(failure.status);
        self.failed.get_or_insert(failure.status);
        let shown = program.program.first().map_or("", String::as_str);
        self.not_started.get_or_insert(format!("cannot start '{shown}': {}", failure.error));
    }

    pub(super) fn finish(
        mut self,
        end: AtOutcome,
        signal: Option<CaughtSignal>,
    ) -> TimedRunOutcome {
        self.result.end = end;
        self.result.woken_late_ns = Distribution::from_histogram(&self.woken);
        self.result.started_late_ns = Distribution::from_histogram(&self.started);
        let (steps, total_step) = self.steps;
        if steps > 0 {
            self.result.findings.push(Finding {
                code: FindingCode::ClockStepped,
                severity: Severity::Warning,
                message: format!(
                    "The system clock was stepped {} during the wait for an instant, by {:+.3} s \
                     in total.",
                    if steps == 1 { "once".to_owned() } else { format!("{steps} times") },
                    total_step.as_seconds()
                ),
                advice: "Start times refer to the stepped clock; start latency includes a forward \
                         step over an instant."
                    .to_owned(),
                trial: None,
            });
        }
        TimedRunOutcome {
            result: self.result,
            failed: self.failed,
            not_started: self.not_started,
            signal,
        }
    }
}

fn saturating_ns(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

fn latency_ns(instant_ns: i64, now_ns: i64) -> u64 {
    u64::try_from(now_ns.saturating_sub(instant_ns)).unwrap_or(0)
}

fn unsynchronised_finding() -> Option<Finding> {
    let clock = kernel_clock().ok().filter(|clock| !clock.synchronised)?;
    Some(Finding {
        code: FindingCode::ClockUnsynchronised,
        severity: Severity::Warning,
        message: format!(
            "The system clock is not synchronised (maximum error {:.0} s): start times refer to \
             its reading.",
            clock.maximum_error.as_seconds()
        ),
        advice: "Run a time daemon, and wait for it with 'horolog after --clock 1ms'.".to_owned(),
        trial: None,
    })
}
