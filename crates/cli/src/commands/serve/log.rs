//! Event log of a running server: one line on standard error per event, as text or JSON, with
//! level, name, message and fields. Events are changes of state and never caused by single packets,
//! so they are rare, and the spans and filters of a tracing library are not needed.

use std::io::{self, Write};

use horolog_sys::explain::explain_line;
use serde_json::{Map, Value, json};

/// Format of the lines of the event log (`--log`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// `horolog: LEVEL NAME: MESSAGE`, for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Severity of a log event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogLevel {
    /// Normal operation.
    Info,
    /// The operator should check it.
    Warning,
    /// A requested operation failed.
    Error,
}

impl LogLevel {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Event of a running server for the log.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LogEvent {
    /// Severity.
    pub(crate) level: LogLevel,
    /// Stable name for programs, such as `clock-step`.
    pub(crate) name: &'static str,
    /// Text for people.
    pub(crate) message: String,
    /// Details for programs, which only the JSON format contains.
    pub(crate) fields: Map<String, Value>,
}

impl LogEvent {
    /// Creates an event without fields. System errors in the message are explained by cause and
    /// remedy.
    pub(crate) fn new(level: LogLevel, name: &'static str, message: impl Into<String>) -> Self {
        let message = explain_line(&message.into()).into_owned();
        Self { level, name, message, fields: Map::new() }
    }

    /// Adds a field for the JSON format.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    /// Formats the event as a line without newline; `now` is the time in RFC 3339 format.
    fn to_line(&self, format: LogFormat, now: &str) -> String {
        match format {
            LogFormat::Text => {
                // The text of an error may contain newlines.
                let message = self.message.replace(['\n', '\r'], " ");
                format!("horolog: {} {}: {message}", self.level.name(), self.name)
            }
            LogFormat::Json => {
                let mut object = Map::new();
                object.insert("time".into(), json!(now));
                object.insert("level".into(), json!(self.level.name()));
                object.insert("event".into(), json!(self.name));
                object.insert("message".into(), json!(self.message));
                object.extend(self.fields.clone());
                Value::Object(object).to_string()
            }
        }
    }
}

/// Writer of the event log to standard error, in one format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLogger(pub(crate) LogFormat);

impl EventLogger {
    /// Writes an event with the present time. Write errors, as on a full disk, are ignored.
    pub(crate) fn log(self, event: &LogEvent) {
        let line = event.to_line(self.0, &horolog_record::rfc3339_now());
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_either_form() {
        let event = LogEvent::new(LogLevel::Warning, "reload-refused", "two\nlines \"quoted\"")
            .with("keys", vec!["listen"])
            .with("n", 3);
        assert_eq!(
            event.to_line(LogFormat::Text, "now"),
            "horolog: warning reload-refused: two lines \"quoted\""
        );
        let line = event.to_line(LogFormat::Json, "now");
        assert!(!line.contains('\n'));
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "warning");
        assert_eq!(object["event"], "reload-refused");
        assert_eq!(object["message"], "two\nlines \"quoted\"");
        assert_eq!((&object["keys"][0], &object["n"]), (&json!("listen"), &json!(3)));
        assert_eq!(object["time"], "now");
    }
}
