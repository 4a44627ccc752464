//! Output of a calibrator: the source estimate, or the reason for its absence, and the status.

use horolog_discipline::{
    PulseOffsetHistory, SentenceOnlyTime, SentenceRejectReason, SynchronisationState,
};
use horolog_time::{Monotonic, Span, Timestamp, Utc};

use super::{Calibrator, LastInputStatus, STALLED_AFTER, TICK_INTERVAL, error_bound, wire_leap};
use crate::calibration::error_log::ClockErrorLog;
use crate::calibration::status::state_name;
use crate::{CalibrationStatus, ClockReadings, Slew, SourceError, SourceEstimate};

impl Calibrator {
    /// Returns the estimate of the time at `readings`, or the reason why there is none.
    pub(in crate::calibration) fn estimate(
        &self,
        readings: &ClockReadings,
    ) -> Result<SourceEstimate, SourceError> {
        let now = readings.monotonic;
        if now - self.clocks_read_at > STALLED_AFTER {
            return Err(SourceError::NoData("its thread is not running".into()));
        }
        if self.conditioner.is_none() {
            // The last report is followed for a while; the reason for the lack of a newer one comes
            // with it.
            let is_usable = self.input_error.is_none() && self.unconfirmed_claim(now).is_none();
            let coarse = self.labeller.coarse_time(now).filter(|_| is_usable);
            let coarse = coarse.ok_or_else(|| self.no_time_error(now))?;
            return Ok(self.coarse_estimate(readings, &coarse));
        }
        if let Some(step) = self.foreign_step(readings) {
            let seconds = step.as_seconds();
            return Err(SourceError::Unusable(format!(
                "another program stepped the system clock by {seconds:+.6} s; waiting for a pulse"
            )));
        }
        let estimate = self.servo.estimate(now).filter(|_| self.servo.state().is_synchronised());
        let estimate = estimate.ok_or_else(|| self.unusable_error(now))?;
        Ok(SourceEstimate {
            offset: -estimate.offset,
            frequency_ppb: -estimate.rate_ppb.round() as i64,
            uncertainty: error_bound(estimate.uncertainty_ns) + self.rate_change_error(now),
            reference_id: *b"PPS\0",
            reference: self.reference.unwrap_or(readings.realtime()),
            ..self.base_estimate(readings)
        })
    }

    /// Returns the estimate of the time by sentences alone.
    pub(super) fn coarse_estimate(
        &self,
        readings: &ClockReadings,
        coarse: &SentenceOnlyTime,
    ) -> SourceEstimate {
        let SentenceOnlyTime { at, utc, error_bound: uncertainty } = *coarse;
        let system = Timestamp::<Utc>::from_ns(at.as_ns()) + readings.realtime_minus_monotonic;
        SourceEstimate {
            at,
            offset: utc - system,
            uncertainty,
            reference: utc,
            ..self.base_estimate(readings)
        }
    }

    /// Returns the fields that every estimate has in common.
    fn base_estimate(&self, readings: &ClockReadings) -> SourceEstimate {
        SourceEstimate {
            at: readings.monotonic,
            offset: Span::ZERO,
            frequency_ppb: 0,
            slew: Slew::default(),
            uncertainty: Span::ZERO,
            leap: wire_leap(self.leaps.today),
            tai_minus_utc_s: self.leaps.tai_minus_utc_s(),
            next_leap: self.leaps.receiver_next(),
            stratum: 1,
            reference_id: *b"GNSS",
            reference: readings.realtime(),
            root_delay: Span::ZERO,
            root_dispersion: Span::ZERO,
            is_unconfirmed: false,
            host_clock: None,
        }
    }

    /// Returns the error by which the clock's rate may have changed since the estimate: the last
    /// change of the frequency command, over the interval for which an estimate holds; 0 if the
    /// change is older than that.
    fn rate_change_error(&self, now: Timestamp<Monotonic>) -> Span {
        let is_recent = self.changed_at.is_some_and(|at| now - at <= TICK_INTERVAL);
        let ns = if is_recent { self.change_ppb * TICK_INTERVAL.as_seconds() } else { 0.0 };
        Span::from_ns(ns.ceil() as i64)
    }

    /// Returns the error for a missing estimate as unusable, so that the selector does not
    /// extrapolate the last estimate as it does without data.
    fn unusable_error(&self, now: Timestamp<Monotonic>) -> SourceError {
        match self.no_time_error(now) {
            SourceError::NoData(why) => SourceError::Unusable(why),
            unusable @ SourceError::Unusable(_) => unusable,
        }
    }

    fn no_time_error(&self, now: Timestamp<Monotonic>) -> SourceError {
        if let Some(fault) = &self.input_error {
            return fault.clone();
        }
        let no_data = |text: &str| SourceError::NoData(text.to_owned());
        let has_pulse = self.conditioner.is_some();
        let no_sentence = self.last_sentence.is_missing(now);
        let no_pulse = has_pulse && self.last_pulse.is_missing(now);
        if self.servo.state() == SynchronisationState::Unsynchronised && no_pulse {
            return SourceError::Unusable(
                "no pulse for longer than the holdover limit, or than its clock remains accurate"
                    .into(),
            );
        }
        let reject_error =
            |last: &LastInputStatus| last.reject_reason.clone().map(SourceError::Unusable);
        match (no_sentence, no_pulse) {
            (true, true) => no_data("no pulses, and no sentences with the time"),
            (true, false) if has_pulse => reject_error(&self.last_pulse)
                .filter(|_| self.labeller.is_established())
                .unwrap_or_else(|| no_data("pulses arrive, and no sentence names their second")),
            (true, false) => no_data("no sentence with the time"),
            (false, true) => reject_error(&self.last_sentence)
                .filter(|error| {
                    *error != SourceError::Unusable(SentenceRejectReason::NoPulse.to_string())
                })
                .unwrap_or_else(|| no_data("sentences arrive, and no pulse")),
            (false, false) => reject_error(&self.last_sentence)
                .or_else(|| reject_error(&self.last_pulse))
                .unwrap_or_else(|| no_data("waiting for its first sentences and pulses")),
        }
    }

    /// Returns the data from which Allan deviations are computed, outside of the lock because that
    /// takes long.
    pub(in crate::calibration) fn stability(&self) -> PulseOffsetHistory {
        self.servo.stability().clone()
    }

    /// Returns the data of `horolog status`, without the Allan deviations.
    pub(in crate::calibration) fn status(&self, readings: &ClockReadings) -> CalibrationStatus {
        let report = self.estimate(readings);
        let estimate = self.servo.estimate(readings.monotonic);
        let is_coarse = self.conditioner.is_none() && report.is_ok();
        let mut pulses = self.pulses.clone();
        if let Some(conditioner) = &self.conditioner {
            let counts = conditioner.counts();
            pulses.set("wrong_width", counts.wrong_width);
            pulses.set("missed", counts.missed);
        }
        let bound = |report: &SourceEstimate| report.uncertainty.as_ns() as f64;
        let status = CalibrationStatus {
            name: self.name.clone(),
            state: if is_coarse { "coarse" } else { state_name(self.servo.state()) }.into(),
            reason: report.as_ref().err().map(ToString::to_string),
            offset_ns: report.as_ref().ok().map(|report| -report.offset.as_ns()),
            uncertainty_ns: estimate
                .map(|estimate| estimate.uncertainty_ns)
                .or(report.as_ref().ok().map(bound)),
            frequency_ppb: estimate.map(|estimate| estimate.frequency_ppb),
            noise_ns: self.servo.noise_ns(),
            allan: Vec::new(),
            controls_clock: self.steering.is_some() && !self.selection_history.is_suspended,
            control_suspended: self.selection_history.is_suspended,
            holdover_s: self.servo.holdover_duration(readings.monotonic).map(Span::as_seconds),
            holdover_limit_s: self.settings.holdover_max.as_seconds(),
            control_ended: self.steering_ended.clone(),
            steps: self.steps,
            pulses,
            sentences: self.sentences.clone(),
            rejected_sentence: self.rejected.as_ref().map(ToString::to_string),
            outputs: self.outputs.status(),
            log_failures: self.log.as_ref().map(ClockErrorLog::failures),
            tai_minus_utc_s: None,
            pending_leap: None,
            leap_rejection: None,
            core: None,
            real_time: false,
        };
        self.with_leaps(status)
    }
}
