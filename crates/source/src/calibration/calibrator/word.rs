//! What a calibrator says: the time with its bounds, or why there is none, and its state.

use horolog_discipline::{Stability, State};
use horolog_time::{Monotonic, Span, Timestamp, Utc};

use super::{Calibrator, Last, STUCK, TICK, deviations, wire_leap};
use crate::calibration::error_log::ErrorLog;
use crate::calibration::status::state_name;
use crate::{CalibrationStatus, Fault, Look, Report, Slew};

impl Calibrator {
    /// What is known of the time at `look`.
    pub(in crate::calibration) fn report(&self, look: &Look) -> Result<Report, Fault> {
        let now = look.monotonic;
        if now - self.looked > STUCK {
            return Err(Fault::Silent("its thread does not run".into()));
        }
        let report = Report {
            at: now,
            offset: Span::ZERO,
            frequency_ppb: 0,
            slew: Slew::default(),
            uncertainty: Span::ZERO,
            leap: wire_leap(self.leaps.today),
            tai_minus_utc_s: self.leaps.tai_minus_utc_s(),
            next_leap: self.leaps.told_next(),
            stratum: 1,
            reference_id: *b"GNSS",
            reference: look.realtime(),
            root_delay: Span::ZERO,
            root_dispersion: Span::ZERO,
        };
        if self.conditioner.is_none() {
            // The last report is followed for a while; why there is no newer one is told with it.
            let coarse = self.labeller.coarse(now).filter(|_| self.broken.is_none());
            let coarse = coarse.ok_or_else(|| self.fault(now))?;
            let system =
                Timestamp::<Utc>::from_ns(coarse.at.as_ns()) + look.realtime_minus_monotonic;
            let (offset, uncertainty) = (coarse.utc - system, coarse.uncertainty);
            return Ok(Report {
                at: coarse.at,
                offset,
                uncertainty,
                reference: coarse.utc,
                ..report
            });
        }
        if let Some(moved) = self.moved(look) {
            let seconds = moved.as_seconds();
            return Err(Fault::Unusable(format!(
                "somebody has set the system clock by {seconds:+.6} s; a pulse is awaited"
            )));
        }
        let estimate = self.servo.estimate(now).filter(|_| self.servo.state().is_synchronised());
        let estimate = estimate.ok_or_else(|| self.no_time(now))?;
        Ok(Report {
            offset: -estimate.offset,
            frequency_ppb: -estimate.rate_ppb.round() as i64,
            uncertainty: deviations(estimate.uncertainty_ns) + self.unsettled(now),
            reference_id: *b"PPS\0",
            reference: self.reference.unwrap_or(report.reference),
            ..report
        })
    }

    /// How far a report may be off that another command changes the clock's rate under: by as much
    /// as the last one did, over the second for which a report holds.
    fn unsettled(&self, now: Timestamp<Monotonic>) -> Span {
        let is_recent = self.changed.is_some_and(|at| now - at <= TICK);
        let ns = if is_recent { self.change_ppb * TICK.as_seconds() } else { 0.0 };
        Span::from_ns(ns.ceil() as i64)
    }

    /// Why nothing is known of the time. Whoever is only silent is followed by the last report for
    /// a while; here that is what is known to hold no longer.
    fn no_time(&self, now: Timestamp<Monotonic>) -> Fault {
        match self.fault(now) {
            Fault::Silent(why) => Fault::Unusable(why),
            unusable @ Fault::Unusable(_) => unusable,
        }
    }

    fn fault(&self, now: Timestamp<Monotonic>) -> Fault {
        if let Some(fault) = &self.broken {
            return fault.clone();
        }
        let silent = |text: &str| Fault::Silent(text.to_owned());
        let has_pulse = self.conditioner.is_some();
        let no_sentence = self.last_sentence.is_missing(now);
        let no_pulse = has_pulse && self.last_pulse.is_missing(now);
        if self.servo.state() == State::Unsynchronised && no_pulse {
            return Fault::Unusable(
                "no pulse has come for longer than the limit to holdover, or than its clock stays \
                 right"
                    .into(),
            );
        }
        let doubt = |last: &Last| last.doubt.clone().map(Fault::Unusable);
        match (no_sentence, no_pulse) {
            (true, true) => silent("neither pulses nor sentences that tell the time come"),
            (true, false) if has_pulse => doubt(&self.last_pulse)
                .filter(|_| self.labeller.is_established())
                .unwrap_or_else(|| silent("pulses come, and no sentence names their second")),
            (true, false) => silent("no sentence comes that tells the time"),
            (false, true) => doubt(&self.last_sentence)
                .filter(|_| self.sentences.get("void") > 0)
                .unwrap_or_else(|| silent("sentences come, and no pulse")),
            (false, false) => doubt(&self.last_sentence)
                .or_else(|| doubt(&self.last_pulse))
                .unwrap_or_else(|| silent("its first sentences and pulses are awaited")),
        }
    }

    /// What Allan deviations are worked out of, which takes too long to do it under a lock.
    pub(in crate::calibration) fn stability(&self) -> Stability {
        self.servo.stability().clone()
    }

    /// For `horolog status`, but for the Allan deviations.
    pub(in crate::calibration) fn status(&self, look: &Look) -> CalibrationStatus {
        let report = self.report(look);
        let estimate = self.servo.estimate(look.monotonic);
        let is_coarse = self.conditioner.is_none() && report.is_ok();
        let mut pulses = self.pulses.clone();
        if let Some(conditioner) = &self.conditioner {
            let counts = conditioner.counts();
            pulses.set("wrong_width", counts.wrong_width);
            pulses.set("missed", counts.missed);
        }
        let bound = |report: &Report| report.uncertainty.as_ns() as f64;
        let status = CalibrationStatus {
            name: self.name.clone(),
            state: if is_coarse { "coarse" } else { state_name(self.servo.state()) },
            reason: report.as_ref().err().map(ToString::to_string),
            offset_ns: report.as_ref().ok().map(|report| -report.offset.as_ns()),
            uncertainty_ns: estimate
                .map(|estimate| estimate.uncertainty_ns)
                .or(report.as_ref().ok().map(bound)),
            frequency_ppb: estimate.map(|estimate| estimate.frequency_ppb),
            noise_ns: self.servo.noise_ns(),
            allan: Vec::new(),
            controls_clock: self.control.is_some() && !self.votes.is_suspended,
            control_suspended: self.votes.is_suspended,
            holdover_s: self.servo.held_over(look.monotonic).map(Span::as_seconds),
            holdover_limit_s: self.settings.holdover_max.as_seconds(),
            control_ended: self.control_ended.clone(),
            steps: self.steps,
            pulses,
            sentences: self.sentences.clone(),
            outputs: self.outputs.status(),
            log_failures: self.log.as_ref().map(ErrorLog::failures),
            tai_minus_utc_s: None,
            pending_leap: None,
            leap_doubt: None,
            core: None,
            real_time: false,
        };
        self.with_leaps(status)
    }
}
