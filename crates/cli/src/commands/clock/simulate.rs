//! `horolog clock simulate`: simulates the discipline of a clock, and writes the result as text,
//! JSON and HTML report.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::time::Duration;

use clap::Args;
use horolog_discipline::simulation::{FaultPeriod, SimulationSettings, TimestampDelay};
use horolog_discipline::{OscillatorModel, ServoSettings};
use horolog_experiment::clock_simulate;
use horolog_record::ClockSimulateResult;

use crate::commands::experiment_progress::ExperimentProgress;
use crate::failure::CommandFailure;
use crate::files::ResultFileArgs;
use crate::limit::MetricLimit;
use crate::output;
use crate::values;

/// Maximum simulated time, in s. A simulated second takes 40 bytes of memory, and more while
/// metrics are computed.
const DURATION_MAX_S: u64 = 60 * 86_400;
/// Maximum of `--pulses-per-second`, above the pulse rate of any receiver.
const PULSES_MAX: i64 = 50;

/// Simulate a clock that is disciplined by a receiver's PPS pulses and NMEA sentences: a day, or
/// with --duration up to 60 days, within seconds.
///
/// The simulation includes an oscillator with its noises (white, flicker and random-walk FM after
/// IEEE 1139, ageing, temperature), a receiver's pulses and sentences with their errors, and
/// Horolog's assignment of sentences to pulses, filter and servo. For comparison, the method of
/// Liu, Wu and Wang, "Design of NTP server based on multi-core processor", Journal of Time and
/// Frequency 43 (2020), 1, 18-28, doi:10.13875/j.issn.1674-0637.2020-01-0018-11 (section 2.2.3)
/// runs on the same noise: at each pulse it sets the clock to the second after that of the last
/// sentence. The same seed gives the same values.
///
/// Errors are relative to true time, sampled at a random point in each second, from the second in
/// which the servo first locked, excluding outages and the minute after each.
#[derive(Args, Debug)]
pub(crate) struct ClockSimulateArgs {
    /// Oscillator of the clock: raspberry-pi, tcxo or ocxo.
    #[arg(long, value_name = "NAME", value_parser = parse_oscillator, default_value = "raspberry-pi")]
    oscillator: OscillatorModel,
    /// White noise of a pulse, as a standard deviation, up to 1ms.
    #[arg(long, value_name = "TIME", value_parser = parse_noise, default_value = "100ns")]
    pulse_noise: Duration,
    /// Delay of every pulse, such as an uncompensated interrupt latency, up to 1ms.
    #[arg(long, value_name = "TIME", value_parser = parse_noise, default_value = "0ns")]
    latency: Duration,
    /// Share of pulses that are delayed further, by an exponentially distributed time with a mean
    /// of 10us.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "1%")]
    latency_tail: f64,
    /// Share of sentences that are complete but wrong (by seconds, a year or 1024 weeks), one
    /// second late, or lost.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "0%")]
    bad_sentences: f64,
    /// Ratio of false pulses, at random times, to true ones.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "0%")]
    false_pulses: f64,
    /// Share of pulses that are lost.
    #[arg(long, value_name = "RATIO", value_parser = values::ratio, default_value = "0%")]
    missing_pulses: f64,
    /// Pulses per second; values other than 1 simulate a misconfigured receiver.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=PULSES_MAX))]
    pulses_per_second: u32,
    /// Period without pulses and sentences, as START+DURATION, such as 6h+1h. Repeatable.
    #[arg(long, value_name = "TIMES", value_parser = parse_outage)]
    outage: Vec<FaultPeriod>,
    /// Period in which sentences are wrong by a number of seconds, as START+DURATION:SECONDS, such
    /// as 2h+1m:1 or 2h+1m:-1.
    #[arg(long, value_name = "TIMES", value_parser = parse_spoof, allow_hyphen_values = true)]
    spoof: Option<(FaultPeriod, i64)>,
    /// Simulated time, such as 6h or 7d, up to 60d.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1d")]
    duration: u64,
    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not steer the clock; estimate its error and subtract that from the served time.
    #[arg(long)]
    no_clock_control: bool,
    /// Exit with status 1 if this expression is true for the simulated clock, such as 'stddev>1us'
    /// or 'recovery>60s'. Repeatable. A limit on a metric that was not measured fails.
    ///
    /// Metrics: mean (absolute value of the mean), p99 and max (of absolute values), stddev, rms,
    /// of the error; recovery (longest time from the end of an outage until the absolute error
    /// stays at most 1 us for a minute).
    #[arg(long, value_name = "LIMIT", value_parser = MetricLimit::<ClockSimulateResult>::parse)]
    fail_if: Vec<MetricLimit<ClockSimulateResult>>,
    #[command(flatten)]
    files: ResultFileArgs,
}

pub(crate) fn parse_oscillator(text: &str) -> Result<OscillatorModel, String> {
    let names = || OscillatorModel::ALL.map(|oscillator| oscillator.name).join(", ");
    OscillatorModel::named(text).ok_or_else(|| format!("write one of {}", names()))
}

fn parse_noise(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        long if long > Duration::from_millis(1) => Err("at most 1ms".into()),
        duration => Ok(duration),
    }
}

/// Parses a time of whole seconds, with units up to days. Returns seconds.
fn parse_seconds(text: &str) -> Result<u64, String> {
    values::positive_duration(text)
        .ok()
        .filter(|duration| duration.subsec_nanos() == 0)
        .map(|duration| duration.as_secs())
        .ok_or_else(|| "expected whole seconds, such as 90s, 30m, 6h or 7d".into())
}

fn parse_duration(text: &str) -> Result<u64, String> {
    match parse_seconds(text)? {
        seconds if seconds > DURATION_MAX_S => Err("at most 60d".into()),
        seconds => Ok(seconds),
    }
}

fn parse_outage(text: &str) -> Result<FaultPeriod, String> {
    let form = "expected START+DURATION, such as 6h+1h";
    let (begin, length) = text.split_once('+').ok_or(form)?;
    let begin_s = if begin == "0" { 0 } else { parse_seconds(begin)? };
    Ok(FaultPeriod { begin_s, length_s: parse_seconds(length)? })
}

fn parse_spoof(text: &str) -> Result<(FaultPeriod, i64), String> {
    let form = "expected START+DURATION:SECONDS, such as 2h+1m:1";
    let (period, seconds) = text.rsplit_once(':').ok_or(form)?;
    let seconds = seconds.parse::<i32>().map_err(|_| form)?;
    if seconds == 0 {
        return Err("an error of 0 s has no effect; use 1 or -1, for example".into());
    }
    Ok((parse_outage(period)?, seconds.into()))
}

impl ClockSimulateArgs {
    fn settings(&self) -> SimulationSettings {
        let defaults = SimulationSettings::default();
        let ns = |duration: Duration| duration.as_secs_f64() * 1e9;
        SimulationSettings {
            seed: self.seed,
            duration_s: self.duration,
            oscillator: self.oscillator,
            pulse_noise_ns: ns(self.pulse_noise),
            latency: TimestampDelay {
                constant_ns: ns(self.latency),
                tail_share: self.latency_tail,
                ..defaults.latency
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
                ..defaults.servo
            },
            ..defaults
        }
    }

    /// Rejects outages and spoofing that would not start before the end of the simulation.
    fn check_period_starts(&self) -> Result<(), CommandFailure> {
        let outages = self.outage.iter().map(|period| ("--outage", period));
        let spoof = self.spoof.iter().map(|(period, _)| ("--spoof", period));
        let is_late = |(_, period): &(&str, &FaultPeriod)| period.begin_s >= self.duration;
        outages.chain(spoof).find(is_late).map_or(Ok(()), |(option, period)| {
            Err(CommandFailure::usage(format!(
                "{option} starts after {} s, but only {} s are simulated; give a longer \
                    --duration",
                period.begin_s, self.duration
            )))
        })
    }
}

pub(super) fn run(args: &ClockSimulateArgs) -> Result<(), CommandFailure> {
    let files = args.files.open()?;
    args.check_period_starts()?;
    output::install_interrupt_handler()?;
    let (settings, progress) = (args.settings(), ExperimentProgress::default());
    let mut result = clock_simulate::run(&settings, output::command_line(), &progress);
    files.finish(&mut result, &args.fail_if)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_days_too() {
        assert_eq!(parse_duration("7d"), Ok(604_800));
        assert_eq!(parse_duration("90m"), Ok(5_400));
        let period = |begin_s, length_s| FaultPeriod { begin_s, length_s };
        assert_eq!(parse_outage("6h+1h"), Ok(period(21_600, 3_600)));
        assert_eq!(parse_outage("0+90"), Ok(period(0, 90)));
        assert_eq!(parse_spoof("2h+1m:-1"), Ok((period(7_200, 60), -1)));
        for wrong in ["", "d", "0d", "1.5s", "400d", "-1d", "99999999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        for wrong in ["6h", "+1h", "6h+", "6h+0"] {
            assert!(
                parse_outage(wrong).is_err() && parse_spoof(&format!("{wrong}:1")).is_err(),
                "{wrong}"
            );
        }
        assert!(parse_spoof("2h+1m:0").is_err_and(|why| why.contains("no effect")));
        assert!(parse_spoof("6h+1h").is_err() && parse_spoof("6h+1h:x").is_err());
    }

    #[test]
    fn an_outage_behind_the_end_is_refused() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ClockSimulateArgs,
        }
        let begins = |text: &str| {
            let words = text.split_whitespace();
            <Line as clap::Parser>::parse_from(words)
                .args
                .check_period_starts()
                .map_err(|why| why.to_string())
        };
        assert_eq!(begins("simulate --duration 1h --outage 10m+1h --spoof 59m+5m:1"), Ok(()));
        for (option, value) in [("--outage", "1h+1m"), ("--spoof", "2h+1m:1")] {
            let why = begins(&format!("simulate --duration 1h {option} {value}")).unwrap_err();
            assert!(why.starts_with(option) && why.contains("only 3600 s"), "{why}");
        }
    }

    #[test]
    fn oscillators_have_names() {
        assert_eq!(parse_oscillator("tcxo"), Ok(OscillatorModel::TCXO));
        assert!(
            parse_oscillator("quartz").is_err_and(|text| text.contains("raspberry-pi, tcxo, ocxo"))
        );
    }
}
