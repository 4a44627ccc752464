//! `horolog clock simulate`: flags to a simulation, its result as text, JSON and page.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use horolog_discipline::simulation::{Latency, Period, SimulationSettings, simulate};
use horolog_discipline::{Oscillator, ServoSettings};
use horolog_record::{Severity, rfc3339_now};
use horolog_report::table;

use super::limit::Limit;
use super::outcome;
use crate::failure::Failure;
use crate::output::{self, Destination};
use crate::values;

/// Each simulated second takes 40 bytes of memory and more while figures are worked out.
const DURATION_MAX_S: u64 = 60 * 86_400;
/// More are no receiver's.
const PULSES_MAX: i64 = 50;

/// Simulate weeks of a clock that is disciplined by a receiver's pulses and sentences, in seconds.
///
/// An oscillator with its noises (white, flicker and random-walk FM after IEEE 1139, ageing,
/// temperature), a receiver's pulses and sentences with their faults, and our labeller, filter and
/// servo. Beside them, on the same noise, the method of Liu, Wu and Wang 2020
/// (doi:10.13875/j.issn.1674-0637.2020-01-0018-11, section 2.2.3): at each pulse the clock is set
/// to the second of the last sentence and one more. The same seed gives the same figures.
///
/// Errors are against true time, once a second at any instant of it, from the second in which the
/// servo was first locked on, without outages and the minute after each.
#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// The clock's oscillator: raspberry-pi, tcxo or ocxo.
    #[arg(long, value_name = "NAME", value_parser = oscillator, default_value = "raspberry-pi")]
    oscillator: Oscillator,
    /// White noise of a pulse, as a standard deviation, up to 1ms.
    #[arg(long, value_name = "TIME", value_parser = noise, default_value = "100ns")]
    pulse_noise: Duration,
    /// How late every pulse is seen, such as an interrupt's latency that is not set off; up to 1ms.
    #[arg(long, value_name = "TIME", value_parser = noise, default_value = "0ns")]
    latency: Duration,
    /// Share of pulses that are seen 10us later in the mean.
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, default_value = "1%")]
    latency_tail: f64,
    /// Share of sentences that are whole and wrong (by seconds, a year or 1024 weeks), a second
    /// late, or lost.
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, default_value = "0%")]
    bad_sentences: f64,
    /// False pulses for each true one, at any instant.
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, default_value = "0%")]
    false_pulses: f64,
    /// Share of pulses that are lost.
    #[arg(long, value_name = "SHARE", value_parser = values::ratio, default_value = "0%")]
    missing_pulses: f64,
    /// Pulses in a second; only 1 is right.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=PULSES_MAX))]
    pulses_per_second: u32,
    /// A time without pulses and sentences, as BEGIN+LENGTH, such as 6h+1h; may be given more than
    /// once.
    #[arg(long, value_name = "TIMES", value_parser = outage)]
    outage: Vec<Period>,
    /// A time in which sentences name a second that is so many off, as BEGIN+LENGTH:SECONDS, such
    /// as 2h+1m:1.
    #[arg(long, value_name = "TIMES", value_parser = spoof, allow_hyphen_values = true)]
    spoof: Option<(Period, i64)>,
    /// Simulated time, such as 6h or 7d; up to 60d.
    #[arg(long, value_name = "TIME", value_parser = simulated, default_value = "1d")]
    duration: u64,
    /// What all random numbers begin with.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not steer the clock; estimate its error and take that off what is served.
    #[arg(long)]
    no_clock_control: bool,
    /// End with status 1 if this holds of our clock, such as 'stddev>1us' or 'recovery>60s'; may be
    /// given more than once. Metrics: mean, stddev, rms, p99, max (of the error, either way), and
    /// recovery (after the slowest outage). What was not measured breaks its limit.
    #[arg(long, value_name = "LIMIT")]
    fail_if: Vec<Limit>,
    /// Write the result to this file; to standard output with -, instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn oscillator(text: &str) -> Result<Oscillator, String> {
    let names = || Oscillator::ALL.map(|oscillator| oscillator.name).join(", ");
    Oscillator::named(text).ok_or_else(|| format!("write one of {}", names()))
}

fn noise(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        long if long > Duration::from_millis(1) => Err("no pulse is so bad: 1ms at most".into()),
        duration => Ok(duration),
    }
}

/// Whole seconds, also in days.
fn long_seconds(text: &str) -> Result<u64, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    match days.and_then(|days| days.checked_mul(86_400)) {
        Some(0) => Err("the time must be longer than 0".into()),
        Some(seconds) => Ok(seconds),
        None => values::long_duration(text)
            .ok()
            .filter(|duration| duration.subsec_nanos() == 0)
            .map(|duration| duration.as_secs())
            .ok_or_else(|| "write a time in whole seconds, such as 90s, 30m, 6h or 7d".into()),
    }
}

fn simulated(text: &str) -> Result<u64, String> {
    match long_seconds(text)? {
        seconds if seconds > DURATION_MAX_S => Err("60d at most".into()),
        seconds => Ok(seconds),
    }
}

fn outage(text: &str) -> Result<Period, String> {
    let form = "write when it begins and how long it takes, such as 6h+1h";
    let (begin, length) = text.split_once('+').ok_or(form)?;
    let begin_s = if begin == "0" { 0 } else { long_seconds(begin)? };
    Ok(Period { begin_s, length_s: long_seconds(length)? })
}

fn spoof(text: &str) -> Result<(Period, i64), String> {
    let form = "write when it begins, how long it takes and the seconds, such as 2h+1m:1";
    let (period, seconds) = text.rsplit_once(':').ok_or(form)?;
    let seconds = seconds.parse::<i32>().map_err(|_| form)?;
    Ok((outage(period)?, seconds.into()))
}

impl SimulateArgs {
    fn settings(&self) -> SimulationSettings {
        let usual = SimulationSettings::default();
        let ns = |duration: Duration| duration.as_secs_f64() * 1e9;
        SimulationSettings {
            seed: self.seed,
            duration_s: self.duration,
            oscillator: self.oscillator,
            pulse_noise_ns: ns(self.pulse_noise),
            latency: Latency {
                constant_ns: ns(self.latency),
                tail_share: self.latency_tail,
                ..usual.latency
            },
            bad_sentences: self.bad_sentences,
            false_pulses: self.false_pulses,
            missing_pulses: self.missing_pulses,
            pulses_per_second: self.pulses_per_second,
            outages: self.outage.clone(),
            spoof: self.spoof,
            servo: ServoSettings {
                oscillator: self.oscillator,
                is_steering: !self.no_clock_control,
                ..usual.servo
            },
            ..usual
        }
    }
}

pub(super) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let to_stdout = [&args.json, &args.html];
    let to_stdout = to_stdout.into_iter().flatten().filter(|path| output::is_stdout(path)).count();
    if to_stdout > 1 {
        return Err(Failure::usage("only one of --json and --html can go to standard output"));
    }
    let open = |path: &Option<PathBuf>| path.as_deref().map(Destination::open).transpose();
    let (json, html) = (open(&args.json)?, open(&args.html)?);
    let (started, settings) = (rfc3339_now(), args.settings());
    let outcome = simulate(&settings);
    let mut result = outcome::record(&settings, &outcome, started, output::command_line());
    if let Some(ours) = result.methods.first() {
        result.limits = args.fail_if.iter().map(|limit| limit.judge(ours)).collect();
    }
    let files = [
        json.map(|file| file.write(&horolog_report::to_json(&result))),
        html.map(|file| file.write(&horolog_report::html::clock(&result))),
    ];
    // Behind the files: a reader of the text that went away ends the command here.
    if to_stdout == 0 {
        output::line(&table::clock(&result, &output::table_style()))?;
    }
    files.into_iter().flatten().collect::<Result<(), _>>()?;
    if let Some(broken) = horolog_report::broken_limits(&result.limits) {
        return Err(Failure::Limit(broken));
    }
    match result.findings.iter().find(|finding| finding.severity == Severity::Error) {
        Some(finding) => Err(Failure::Limit(finding.message.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_days_too() {
        assert_eq!(simulated("7d"), Ok(604_800));
        assert_eq!(simulated("90m"), Ok(5_400));
        let period = |begin_s, length_s| Period { begin_s, length_s };
        assert_eq!(outage("6h+1h"), Ok(period(21_600, 3_600)));
        assert_eq!(outage("0+90"), Ok(period(0, 90)));
        assert_eq!(spoof("2h+1m:-1"), Ok((period(7_200, 60), -1)));
        for wrong in ["", "d", "0d", "1.5s", "400d", "-1d", "99999999999999999999d"] {
            assert!(simulated(wrong).is_err(), "{wrong}");
        }
        for wrong in ["6h", "+1h", "6h+", "6h+0"] {
            assert!(outage(wrong).is_err() && spoof(&format!("{wrong}:1")).is_err(), "{wrong}");
        }
        assert!(spoof("6h+1h").is_err() && spoof("6h+1h:x").is_err());
    }

    #[test]
    fn oscillators_have_names() {
        assert_eq!(oscillator("tcxo"), Ok(Oscillator::TCXO));
        assert!(oscillator("quartz").is_err_and(|text| text.contains("raspberry-pi, tcxo, ocxo")));
    }
}
