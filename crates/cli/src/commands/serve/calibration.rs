//! Flags of `horolog serve` for a GNSS receiver and its PPS pulse, by which the clock is
//! disciplined.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_discipline::OscillatorModel;
use horolog_source::{
    CalibrationConfig, ClockErrorLogConfig, PulseEdgeKind, PulseSpec, SentenceInput,
};
use horolog_time::Span;

use crate::commands::clock::parse_oscillator;
use crate::failure::CommandFailure;
use crate::values;

/// Default of `--clock-error-log-size`, in bytes.
const LOG_SIZE: u64 = 64 << 20;
/// Default of `--holdover-limit`.
const HOLDOVER_LIMIT_DEFAULT: Duration = Duration::from_hours(1);
/// Lower limit of `--sentence-lag`.
const LAG_MIN: Duration = Duration::from_millis(50);
/// Upper limit and default of `--sentence-lag`.
const LAG_MAX: Duration = Duration::from_millis(950);

#[derive(Args, Debug)]
pub(crate) struct ServeGnssArgs {
    /// GNSS receiver to which to discipline the system clock: a serial line, as in
    /// /dev/ttyS0:115200 (default 9600), or gpsd[:HOST:PORT]. It is a time source in addition to
    /// those of --source, which only read the time.
    #[arg(long, value_name = "DEVICE[:BAUD]", conflicts_with = "local")]
    gnss: Option<String>,
    /// PPS pulse of the receiver, which marks the seconds: /dev/ppsN, gpio:/dev/gpiochipN,line=N or
    /// extts:/dev/ptpN,channel=N,pin=N [default: none; the time is then known only to within 1 s].
    #[arg(long, value_name = "DEVICE", requires = "gnss")]
    pps: Option<String>,
    /// Do not steer the system clock; correct the served time by the clock's estimated error.
    #[arg(long, requires = "gnss")]
    no_clock_control: bool,
    /// Longest holdover: time from the last PPS pulse until all replies are marked as
    /// unsynchronised; less if the clock's uncertainty reaches 10 ms sooner.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, default_value = "1h")]
    holdover_limit: Duration,
    /// Offset above which the clock is stepped even while it is served [default: step only at
    /// startup, then slew].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, requires = "gnss",
          conflicts_with = "no_clock_control")]
    clock_step_threshold: Option<Duration>,
    /// Oscillator of the clock, whose model gives the uncertainty in holdover (without PPS pulses):
    /// raspberry-pi (a plain crystal), tcxo or ocxo.
    #[arg(long, value_name = "NAME", value_parser = parse_oscillator, default_value = "raspberry-pi")]
    oscillator: OscillatorModel,
    /// Longest time from a PPS pulse to the beginning of its NMEA sentence, 50ms to 950ms.
    #[arg(long, value_name = "TIME", value_parser = sentence_lag, default_value = "950ms")]
    sentence_lag: Duration,
    /// Delay of the pulse by antenna, cable and receiver: in nanoseconds, or with a unit, as in
    /// 1.5us [default: 0].
    #[arg(long, value_name = "NS", value_parser = pulse_delay, requires = "pps",
          allow_negative_numbers = true)]
    pulse_delay: Option<Span>,
    /// Edge of the pulse that marks the second: assert (active or rising) or clear (inactive or
    /// falling) [default: assert].
    #[arg(long, value_enum, value_name = "EDGE", requires = "pps")]
    pulse_edge: Option<PulseEdgeArg>,
    /// Width of the pulse: pulses whose width differs by more than a quarter are ignored. Not with
    /// an extts device [default: not checked].
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration, requires = "pps")]
    pulse_width: Option<Duration>,
    /// Append every pulse and correction to FILE, as lines of JSON.
    #[arg(long, value_name = "FILE", requires = "gnss")]
    clock_error_log: Option<PathBuf>,
    /// Size in bytes at which the clock error log is renamed to FILE.1, replacing an older one.
    #[arg(long, value_name = "BYTES", default_value_t = LOG_SIZE)]
    clock_error_log_size: u64,
    /// Unit of shared memory (SHM) through which to provide the time to other programs. Repeatable.
    #[arg(long, value_name = "UNIT", requires = "gnss")]
    shm_output: Vec<u8>,
    /// Socket of another program (chronyd's SOCK) to send the time to. Repeatable.
    #[arg(long, value_name = "PATH", requires = "gnss")]
    sock_output: Vec<PathBuf>,
    /// Feed --shm-output and --sock-output even without PPS, though the time can then be wrong by
    /// up to a second: SOCK cannot convey this, and chronyd ignores the precision in SHM.
    #[arg(long, requires = "gnss", conflicts_with = "pps")]
    coarse_output: bool,
}

fn sentence_lag(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        lag if (LAG_MIN..=LAG_MAX).contains(&lag) => Ok(lag),
        _ => Err("50ms to 950ms: a sentence follows its pulse and precedes the next".into()),
    }
}

fn pulse_delay(text: &str) -> Result<Span, String> {
    let form = "expected nanoseconds, or a time with its unit, such as 50, 50ns or 1.5us";
    match text.parse() {
        Ok(ns) => Ok(Span::from_ns(ns)),
        Err(_) if text.ends_with('s') => text.parse().map_err(|_| form.into()),
        Err(_) => Err(form.into()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PulseEdgeArg {
    Assert,
    Clear,
}

impl ServeGnssArgs {
    /// Returns true if a GNSS receiver is specified (`--gnss`).
    pub(crate) fn has_receiver(&self) -> bool {
        self.gnss.is_some()
    }

    /// Returns the number of `cores` for the threads that answer requests: all, or with a receiver
    /// one less; at least 1.
    pub(crate) fn request_cores(&self, cores: usize) -> usize {
        cores.saturating_sub(usize::from(self.has_receiver())).max(1)
    }

    pub(crate) fn resolve(self) -> Result<Option<CalibrationConfig>, CommandFailure> {
        // The default must pass without --clock-error-log, because a file printed by --check has
        // it.
        if self.clock_error_log.is_none() && self.clock_error_log_size != LOG_SIZE {
            return Err(CommandFailure::usage("--clock-error-log-size requires --clock-error-log"));
        }
        let Some(gnss) = &self.gnss else {
            return self.option_without_receiver().map_or(Ok(None), |option| {
                let reason = "requires a GNSS receiver";
                Err(CommandFailure::usage(format!(
                    "{option} {reason}; give --gnss as well, not --local"
                )))
            });
        };
        let sentences: SentenceInput = gnss
            .parse()
            .map_err(|error| CommandFailure::usage(format!("--gnss {gnss}: {error}")))?;
        let bytes_max = self.clock_error_log_size;
        Ok(Some(CalibrationConfig {
            sentences,
            pulse: self.pulse()?,
            controls_clock: !self.no_clock_control,
            holdover_limit: saturating_span(self.holdover_limit),
            step_threshold: self.clock_step_threshold.map(saturating_span),
            oscillator: self.oscillator,
            sentence_lag: saturating_span(self.sentence_lag),
            error_log: self.clock_error_log.map(|path| ClockErrorLogConfig { path, bytes_max }),
            shm_outputs: self.shm_output,
            sock_outputs: self.sock_output,
            coarse_output: self.coarse_output,
        }))
    }

    /// Returns the first option for a receiver that is specified, for use if there is no receiver;
    /// `None` if there is none. clap's `requires` is not sufficient: it is not enforced with
    /// `--local`, and options with default values cannot have it, because a file printed by
    /// `--check` contains them.
    fn option_without_receiver(&self) -> Option<&'static str> {
        let options = [
            ("--pps", self.pps.is_some()),
            ("--no-clock-control", self.no_clock_control),
            ("--holdover-limit", self.holdover_limit != HOLDOVER_LIMIT_DEFAULT),
            ("--clock-step-threshold", self.clock_step_threshold.is_some()),
            ("--oscillator", self.oscillator != OscillatorModel::RASPBERRY_PI),
            ("--sentence-lag", self.sentence_lag != LAG_MAX),
            ("--pulse-delay", self.pulse_delay.is_some()),
            ("--pulse-edge", self.pulse_edge.is_some()),
            ("--pulse-width", self.pulse_width.is_some()),
            ("--clock-error-log", self.clock_error_log.is_some()),
            ("--shm-output", !self.shm_output.is_empty()),
            ("--sock-output", !self.sock_output.is_empty()),
            ("--coarse-output", self.coarse_output),
        ];
        options.into_iter().find_map(|(option, is_present)| is_present.then_some(option))
    }

    fn pulse(&self) -> Result<Option<PulseSpec>, CommandFailure> {
        let Some(pps) = &self.pps else { return Ok(None) };
        let invalid = |error| CommandFailure::usage(format!("--pps {pps}: {error}"));
        let mut pulse: PulseSpec = pps.parse().map_err(invalid)?;
        pulse.edge = match self.pulse_edge {
            None => pulse.edge,
            Some(PulseEdgeArg::Assert) => PulseEdgeKind::Assert,
            Some(PulseEdgeArg::Clear) => PulseEdgeKind::Clear,
        };
        pulse.delay = self.pulse_delay.unwrap_or(pulse.delay);
        pulse.width = self.pulse_width.map(saturating_span).or(pulse.width);
        pulse.check().map_err(invalid)?;
        Ok(Some(pulse))
    }
}

/// Converts a duration to a span in ns; saturates at 2^63 - 1 ns (292 years).
fn saturating_span(duration: Duration) -> Span {
    Span::from_ns(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_pulses_are_in_nanoseconds_or_have_their_unit() {
        assert_eq!(pulse_delay("-50"), Ok(Span::from_ns(-50)));
        assert_eq!(pulse_delay("1.5us"), Ok(Span::from_ns(1_500)));
        assert_eq!(pulse_delay("-50ns"), Ok(Span::from_ns(-50)));
        for wrong in ["", "1.5", "us", "1e3", "fast"] {
            assert!(pulse_delay(wrong).unwrap_err().contains("nanoseconds"), "{wrong}");
        }
    }

    #[test]
    fn a_sentence_lies_between_two_pulses() {
        assert_eq!(sentence_lag("50ms"), Ok(LAG_MIN));
        assert_eq!(sentence_lag("0.95"), Ok(LAG_MAX));
        for wrong in ["49ms", "2s"] {
            assert!(sentence_lag(wrong).unwrap_err().starts_with("50ms to 950ms"), "{wrong}");
        }
    }
}
