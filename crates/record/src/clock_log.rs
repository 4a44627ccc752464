//! Log of a clock's error and its evaluation: the log of a calibrated server, or that of `horolog
//! clock log`. Each line is one JSON object. The length of a line and the numbers of lines and
//! clocks are limited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The schema's name and version.
pub const CLOCK_LOG_SCHEMA: &str = "horolog.clock-log/2";
/// Longest line, in bytes.
pub const CLOCK_LOG_LINE_MAX: usize = 4_096;

const LINES_MAX: u64 = 1_000_000;
const CLOCKS_MAX: usize = 64;
/// Largest length of the name of a clock, a state or a verdict, in bytes.
const NAME_LENGTH_MAX: usize = 128;
/// Largest number of state changes, and of steps, stored per clock.
const EVENTS_MAX: usize = 1_000;
const NS_PER_S: f64 = 1e9;

/// One line of the log. Offsets are positive if the system clock is ahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockLogLine {
    /// Time by the monotonic clock, in ns.
    pub monotonic_ns: i64,
    /// Time in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utc_ns: Option<i64>,
    /// Clock compared with the system clock; absent for the pulses of a calibrated server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Measurement of a pulse, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_ns: Option<i64>,
    /// Verdict on the pulse, such as `accepted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Offset, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// Standard deviation of the estimated offset, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<f64>,
    /// Estimated frequency of the uncorrected clock, in ppb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_ppb: Option<f64>,
    /// Frequency correction, in ppb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_ppb: Option<f64>,
    /// A step of the system clock, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ns: Option<i64>,
    /// State of the clock's discipline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Reason why there is no offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Evaluation of a whole log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockLogResult {
    /// [`CLOCK_LOG_SCHEMA`].
    pub schema: String,
    /// Path of the log file.
    pub file: String,
    /// Lines read.
    pub lines: u64,
    /// Number of times that the monotonic clock went back to a lower value, as after a reboot.
    pub restarts: u64,
    /// Clocks, in order of their names.
    pub clocks: Vec<LoggedClock>,
}

/// Log entries of one clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggedClock {
    /// Name; empty for the pulses of a calibrated server.
    pub name: String,
    /// Pulses by verdict; only the first 64 different verdicts are counted.
    pub verdicts: BTreeMap<String, u64>,
    /// State changes, in order; at most the first 1,000.
    pub states: Vec<ClockLogStateChange>,
    /// Steps of the system clock, in ns; at most the first 1,000.
    pub steps: Vec<ClockLogPoint>,
    /// Offsets, in ns.
    pub offsets: Vec<ClockLogPoint>,
    /// Measurements of pulses with the verdict `accepted` or `acquired`, in ns.
    pub believed: Vec<ClockLogPoint>,
    /// Measurements of pulses with any other verdict, in ns.
    pub refused: Vec<ClockLogPoint>,
    /// Estimated frequencies of the uncorrected clock, in ppb.
    pub frequencies: Vec<ClockLogPoint>,
    /// Frequency corrections, in ppb.
    pub corrections: Vec<ClockLogPoint>,
}

/// A change of the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockLogStateChange {
    /// Seconds from the first line.
    pub at_s: f64,
    /// State after the change.
    pub state: String,
}

/// Value at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockLogPoint {
    /// Seconds from the first line.
    pub at_s: f64,
    /// Value, in the unit of the list that holds the point.
    pub value: f64,
}

impl ClockLogLine {
    /// Parses a line without its line end.
    ///
    /// # Errors
    ///
    /// Returns a description of the defect in the line.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        if line.len() > CLOCK_LOG_LINE_MAX {
            return Err(format!("longer than {CLOCK_LOG_LINE_MAX} bytes"));
        }
        // Serde would accept an array as the fields in their order.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err("not a JSON object".to_owned());
        }
        let entry: Self = serde_json::from_slice(line).map_err(|error| describe_error(&error))?;
        let words = [&entry.clock, &entry.verdict, &entry.state];
        if words.into_iter().flatten().any(|word| word.len() > NAME_LENGTH_MAX) {
            return Err(format!("a name of more than {NAME_LENGTH_MAX} bytes"));
        }
        Ok(entry)
    }
}

/// Returns the description of a JSON error with its column instead of its line.
fn describe_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = text.strip_suffix(&position).unwrap_or(&text);
    format!("{message} at column {}", error.column())
}

/// Reader of a log, line by line.
#[derive(Clone, Debug, Default)]
pub struct ClockLogReader {
    lines: u64,
    restarts: u64,
    /// Monotonic and UTC time of the last line.
    last: Option<(i64, Option<i64>)>,
    elapsed_s: f64,
    clocks: BTreeMap<String, LoggedClock>,
}

impl ClockLogReader {
    /// Reads the next line.
    ///
    /// # Errors
    ///
    /// Returns the line number and the defect in the line, or the limit on lines or clocks that it
    /// exceeds; the line is then not counted.
    pub fn read_line(&mut self, line: &[u8]) -> Result<(), String> {
        let number = self.lines + 1;
        let failed = |error: String| format!("line {number}: {error}");
        if number > LINES_MAX {
            return Err(failed(format!("more than {LINES_MAX} lines; draw part of the file")));
        }
        let entry = ClockLogLine::parse(line).map_err(failed)?;
        let name = entry.clock.clone().unwrap_or_default();
        if self.clocks.len() == CLOCKS_MAX && !self.clocks.contains_key(&name) {
            return Err(failed(format!("more than {CLOCKS_MAX} clocks")));
        }
        self.lines = number;
        self.advance_time(&entry);
        let clock = self.clocks.entry(name.clone()).or_default();
        clock.name = name;
        clock.add_line(self.elapsed_s, &entry);
        Ok(())
    }

    /// Advances the elapsed time to this line. If the monotonic clock restarted, the time in
    /// between is taken from UTC, or counts as 0 if UTC is unknown.
    fn advance_time(&mut self, entry: &ClockLogLine) {
        let (monotonic_ns, utc_ns) = self.last.unwrap_or((entry.monotonic_ns, entry.utc_ns));
        let passed_ns = entry.monotonic_ns.saturating_sub(monotonic_ns);
        if passed_ns >= 0 {
            self.elapsed_s += passed_ns as f64 / NS_PER_S;
        } else {
            self.restarts += 1;
            let passed = entry.utc_ns.zip(utc_ns).map_or(0, |(now, then)| now.saturating_sub(then));
            self.elapsed_s += passed.max(0) as f64 / NS_PER_S;
        }
        self.last = Some((entry.monotonic_ns, entry.utc_ns));
    }

    /// Returns the evaluation of all lines.
    #[must_use]
    pub fn result(self, file: String) -> ClockLogResult {
        ClockLogResult {
            schema: CLOCK_LOG_SCHEMA.to_owned(),
            file,
            lines: self.lines,
            restarts: self.restarts,
            clocks: self.clocks.into_values().collect(),
        }
    }
}

impl LoggedClock {
    fn add_line(&mut self, at_s: f64, entry: &ClockLogLine) {
        let point = |value: f64| ClockLogPoint { at_s, value };
        let point_of_ns = |ns: Option<i64>| ns.map(|ns| point(ns as f64));
        self.offsets.extend(point_of_ns(entry.offset_ns));
        self.frequencies.extend(entry.frequency_ppb.map(point));
        self.corrections.extend(entry.command_ppb.map(point));
        if self.steps.len() < EVENTS_MAX {
            self.steps.extend(point_of_ns(entry.step_ns));
        }
        if let Some(verdict) = &entry.verdict {
            let believed = ["accepted", "acquired"].contains(&verdict.as_str());
            let measured = if believed { &mut self.believed } else { &mut self.refused };
            measured.extend(point_of_ns(entry.measured_ns));
            if self.verdicts.len() < CLOCKS_MAX || self.verdicts.contains_key(verdict) {
                *self.verdicts.entry(verdict.clone()).or_default() += 1;
            }
        }
        if let Some(state) = &entry.state
            && self.states.last().is_none_or(|last| last.state != *state)
            && self.states.len() < EVENTS_MAX
        {
            self.states.push(ClockLogStateChange { at_s, state: state.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a calibrated server writes it.
    const PULSE: &str = r#"{"monotonic_ns":5000000123,"utc_ns":1800000000000000000,"measured_ns":-120,"innovation_ns":-15.25,"verdict":"accepted","offset_ns":-107,"uncertainty_ns":31.5,"frequency_ppb":19998.125,"noise_ns":101.5,"command_ppb":-19985.5,"step_ns":null,"state":"locked"}"#;

    fn at(seconds: i64, rest: &str) -> String {
        format!(r#"{{"monotonic_ns":{}{rest}}}"#, seconds * 1_000_000_000)
    }

    #[test]
    fn a_servers_log_is_read() {
        let mut reader = ClockLogReader::default();
        reader.read_line(PULSE.as_bytes()).unwrap();
        for line in [
            at(6, r#","verdict":"outlier","measured_ns":9000,"state":"locked""#),
            at(7, r#","verdict":"missing","measured_ns":null,"state":"holdover","step_ns":-5"#),
            at(8, r#","clock":"raw","offset_ns":3"#),
        ] {
            reader.read_line(line.as_bytes()).unwrap();
        }
        let result = reader.result("errors.jsonl".to_owned());
        assert_eq!((result.lines, result.restarts, result.clocks.len()), (4, 0, 2));
        let [pulses, raw] = &result.clocks[..] else { unreachable!("two clocks") };
        let values =
            |points: &[ClockLogPoint]| points.iter().map(|one| one.value).collect::<Vec<_>>();
        assert_eq!(values(&pulses.offsets), [-107.0]);
        assert_eq!(
            (values(&pulses.believed), values(&pulses.refused)),
            (vec![-120.0], vec![9_000.0])
        );
        assert_eq!(
            (values(&pulses.frequencies), values(&pulses.corrections)),
            (vec![19_998.125], vec![-19_985.5])
        );
        assert_eq!(values(&pulses.steps), [-5.0]);
        let states: Vec<_> = pulses.states.iter().map(|one| one.state.as_str()).collect();
        assert_eq!(states, ["locked", "holdover"]);
        assert!((pulses.states[1].at_s - 2.0).abs() < 1e-6);
        assert_eq!((raw.name.as_str(), values(&raw.offsets)), ("raw", vec![3.0]));
    }

    #[test]
    fn a_machine_that_was_started_anew_goes_on_by_utc() {
        let mut reader = ClockLogReader::default();
        for (seconds, utc_s, offset) in [(100, 1_000, 1), (101, 1_001, 2), (3, 1_061, 3)] {
            let utc_ns = i64::from(utc_s) * 1_000_000_000;
            let line = at(seconds, &format!(r#","utc_ns":{utc_ns},"offset_ns":{offset}"#));
            reader.read_line(line.as_bytes()).unwrap();
        }
        let result = reader.result(String::new());
        let times: Vec<_> = result.clocks[0].offsets.iter().map(|point| point.at_s).collect();
        assert_eq!((times, result.restarts), (vec![0.0, 1.0, 61.0], 1));
    }

    #[test]
    fn the_bad_line_is_named() {
        let mut reader = ClockLogReader::default();
        reader.read_line(PULSE.as_bytes()).unwrap();
        let long = "x".repeat(CLOCK_LOG_LINE_MAX + 1);
        let name = at(1, &format!(r#","clock":"{}""#, "x".repeat(NAME_LENGTH_MAX + 1)));
        for wrong in ["", "{", "{}", "[1]", "{\"monotonic_ns\":1.5}", &long, &name] {
            let error = reader.read_line(wrong.as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: "), "{error}");
        }
        reader.read_line(PULSE.as_bytes()).unwrap();
        for clock in 0..CLOCKS_MAX - 1 {
            reader.read_line(at(9, &format!(r#","clock":"{clock}""#)).as_bytes()).unwrap();
        }
        let error = reader.read_line(at(9, r#","clock":"one more""#).as_bytes()).unwrap_err();
        assert!(error.contains("clocks"), "{error}");
    }

    proptest! {
        #[test]
        fn a_line_that_is_written_is_read(
            times in any::<(i64, Option<i64>)>(), clock in prop::option::of("[a-z/,=0-9]{1,40}"),
            offset_ns in any::<Option<i64>>(), ppb in prop::option::of(-1e6_f64..1e6),
        ) {
            let (monotonic_ns, utc_ns) = times;
            let line = ClockLogLine {
                monotonic_ns, utc_ns, clock, offset_ns, frequency_ppb: ppb,
                ..ClockLogLine::default()
            };
            let text = serde_json::to_string(&line).unwrap();
            prop_assert_eq!(ClockLogLine::parse(text.as_bytes()).unwrap(), line);
        }

        #[test]
        fn any_bytes_are_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = ClockLogReader::default();
            let taken = reader.read_line(&line).is_ok();
            prop_assert_eq!(reader.result(String::new()).lines, u64::from(taken));
        }
    }
}
