//! Profile files: phases of a load profile in TOML. Unknown keys and values of a wrong type are
//! refused with line and key. Parses text; opens no file.
//!
//! ```toml
//! interval = "100ms"      # length of an interval [default: 100ms]
//!
//! [[phase]]
//! name = "before"         # or the phase's number
//! rate = "20k"            # requests per second, as a text or a number
//! duration = "5s"         # as a text, or in seconds
//!
//! [[phase]]
//! name = "rise"
//! rate = "20k"
//! to = "200k"             # final rate of a linear change
//! duration = 10
//! ```

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use horolog_time::text::{self, Rate};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::load_profile::{LoadPhase, LoadProfile};

/// Default length of an interval.
pub const INTERVAL_DEFAULT: Duration = Duration::from_millis(100);

/// Longest name of a phase, in characters.
const NAME_MAX: usize = 40;

/// Error in a profile file, formatted as one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadProfileFileError {
    /// Line, counted from 1; `None` if the error concerns the whole file.
    pub line: Option<usize>,
    /// Description of the error.
    pub reason: String,
}

impl Display for LoadProfileFileError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Byte offset and description of an error.
type PositionedError = (usize, String);

/// Parses a profile; `interval` overrides the one in the file.
pub fn parse(text: &str, interval: Option<Duration>) -> Result<LoadProfile, LoadProfileFileError> {
    let error_at = |(offset, reason): PositionedError| {
        let before = text.as_bytes().iter().take(offset);
        let line = Some(1 + before.filter(|byte| **byte == b'\n').count());
        LoadProfileFileError { line, reason: reason.replace('\n', ", ") }
    };
    let table = DeTable::parse(text).map_err(|error| {
        error_at((error.span().map_or(0, |span| span.start), error.message().to_owned()))
    })?;
    let (file_interval, phases) = read_profile(table.get_ref()).map_err(error_at)?;
    let interval = interval.or(file_interval).unwrap_or(INTERVAL_DEFAULT);
    LoadProfile::new(interval, phases)
        .map_err(|error| LoadProfileFileError { line: None, reason: error.to_string() })
}

fn read_profile(
    table: &DeTable<'_>,
) -> Result<(Option<Duration>, Vec<LoadPhase>), PositionedError> {
    let (mut interval, mut phases) = (None, Vec::new());
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "interval" => interval = Some(read_duration("interval", value)?),
            "phase" => {
                let DeValue::Array(tables) = value.get_ref() else {
                    return Err((
                        key.span().start,
                        "expected [[phase]], in double brackets".to_owned(),
                    ));
                };
                for (number, table) in (1..).zip(tables.iter()) {
                    phases.push(read_phase(number, table)?);
                }
            }
            other => {
                let reason = format!("unknown key '{other}'; expected interval or [[phase]]");
                return Err((key.span().start, reason));
            }
        }
    }
    Ok((interval, phases))
}

fn read_phase(number: usize, value: &Spanned<DeValue<'_>>) -> Result<LoadPhase, PositionedError> {
    let begin = value.span().start;
    let DeValue::Table(table) = value.get_ref() else {
        return Err((begin, "a phase is a [[phase]] table with a rate and a duration".to_owned()));
    };
    let (mut name, mut from, mut to, mut phase_duration) = (number.to_string(), None, None, None);
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "name" => name = read_name(value)?,
            "rate" => from = Some(read_rate("rate", value)?),
            "to" => to = Some(read_rate("to", value)?),
            "duration" => phase_duration = Some(read_duration("duration", value)?),
            other => {
                let reason = format!(
                    "unknown key '{other}' in a phase; expected name, rate, to or duration"
                );
                return Err((key.span().start, reason));
            }
        }
    }
    let missing = |key: &str| (begin, format!("phase '{name}' lacks {key}"));
    let from = from.ok_or_else(|| missing("rate"))?;
    let duration = phase_duration.ok_or_else(|| missing("duration"))?;
    Ok(LoadPhase { from, to: to.unwrap_or(from), duration, name })
}

fn read_name(value: &Spanned<DeValue<'_>>) -> Result<String, PositionedError> {
    match value.get_ref() {
        DeValue::String(text)
            if (1..=NAME_MAX).contains(&text.chars().count())
                && !text.chars().any(char::is_control) =>
        {
            Ok(text.to_string())
        }
        _ => {
            let reason = format!("'name' must be a text of 1 to {NAME_MAX} printable characters");
            Err((value.span().start, reason))
        }
    }
}

fn read_rate(key: &str, value: &Spanned<DeValue<'_>>) -> Result<f64, PositionedError> {
    let rate = value_text(value).map_or_else(
        || Err("write a number or a text such as \"1.5k\"".to_owned()),
        |text| Ok(text.parse::<Rate>()?.per_second()),
    );
    rate.map_err(|reason| (value.span().start, format!("'{key}': {reason}")))
}

fn read_duration(key: &str, value: &Spanned<DeValue<'_>>) -> Result<Duration, PositionedError> {
    let duration = value_text(value).map_or_else(
        || Err("write a number of seconds or a text such as \"500ms\"".to_owned()),
        |text| Ok(text::positive_duration(&text)?),
    );
    duration.map_err(|reason| (value.span().start, format!("'{key}': {reason}")))
}

/// Returns a text or number as written in the file; `None` for other types.
fn value_text(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn phases_are_read() {
        let text = "interval = 0.5\n[[phase]]\nname = \"a\"\nrate = \"2k\"\nduration = 1\n\
                    [[phase]]\nrate = 2000\nto = 5e3\nduration = \"1500ms\"\n";
        let profile = parse(text, None).unwrap();
        assert_eq!(profile.interval(), Duration::from_millis(500));
        let rise = LoadPhase {
            name: "2".to_owned(),
            from: 2000.0,
            to: 5000.0,
            duration: Duration::from_millis(1500),
        };
        assert_eq!(profile.phases(), [LoadPhase::constant("a", 2000.0, SECOND), rise]);
        let finer = Some(Duration::from_millis(50));
        assert_eq!(parse(text, finer).unwrap().interval_count(), 50);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let phase = "[[phase]]\nrate = 1\nduration = 1\n";
        for (text, line, named) in [
            ("", None, "1 to 1000 phases, not 0"),
            ("[[phase]]\nrate = 1\n", Some(1), "phase '1' lacks duration"),
            ("[[phase]]\nname = \"x\"\nduration = 1\n", Some(1), "phase 'x' lacks rate"),
            ("[[phase]]\nrate = 0\nduration = 1\n", Some(2), "'rate': write a positive number"),
            ("[[phase]]\nrate = true\nduration = 1\n", Some(2), "'rate': write a number or"),
            ("[[phase]]\nrate = 1\nduration = \"x\"\n", Some(3), "'duration': write a time"),
            ("[[phase]]\nrate = 1\nduration = 0\n", Some(3), "'duration': the time must be"),
            ("[[phase]]\nrate = 1\nspeed = 2\n", Some(3), "unknown key 'speed' in a phase"),
            ("[[phase]]\nname = \"\"\n", Some(2), "'name' must be a text"),
            ("[phase]\nrate = 1\n", Some(1), "double brackets"),
            ("rate = 1\n", Some(1), "unknown key 'rate'; expected interval"),
            ("phase = [1]\n", Some(1), "a phase is a [[phase]] table"),
            ("[[phase]]\nrate = \n", Some(2), ""),
            (&format!("interval = \"1ms\"\n{phase}"), None, "at least 10 ms"),
            (&format!("interval = 0.3\n{phase}"), None, "not a multiple of the interval"),
        ] {
            let fault = parse(text, None).unwrap_err();
            assert_eq!(fault.line, line, "{text}: {fault}");
            assert!(fault.reason.contains(named), "{text}: {fault}");
            assert!(!fault.to_string().contains('\n'));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(?s).{0,80}|(\\[\\[phase\\]\\]|rate|to|=|1|\"|k|\n){0,30}") {
            if let Err(fault) = parse(&text, None) {
                prop_assert!(!fault.reason.contains('\n'));
                let lines = 1 + text.matches('\n').count();
                prop_assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)));
            }
        }

        #[test]
        fn what_is_written_is_read(
            rates in prop::collection::vec((1u32..1_000_000, 1u32..1_000_000, 1u64..20), 1..9)
        ) {
            let write = |(from, to, tenths): &(u32, u32, u64)| {
                let ms = tenths * 100;
                format!("[[phase]]\nrate = {from}\nto = \"{to}\"\nduration = \"{ms}ms\"\n")
            };
            let text: String = rates.iter().map(write).collect();
            let course = parse(&text, None).unwrap();
            prop_assert_eq!(course.phases().len(), rates.len());
            for (phase, (from, to, tenths)) in course.phases().iter().zip(&rates) {
                prop_assert_eq!(phase.duration, INTERVAL_DEFAULT * *tenths as u32);
                prop_assert_eq!((phase.from, phase.to), (f64::from(*from), f64::from(*to)));
            }
        }
    }
}
