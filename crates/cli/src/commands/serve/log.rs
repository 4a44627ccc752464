//! Notices of a running server: one line on stderr for each event, as text or as JSON, with a
//! level, the event's name and fields. Events are changes of state, so there are few; packets cause
//! none. A tracing library would bring spans and filters that nothing here needs.

use std::io::{self, Write};

use horolog_sys::explain::explain_line;
use serde_json::{Map, Value, json};

/// Format of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object in each line.
    Json,
}

/// Severity of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// Normal operation.
    Info,
    /// The operator should check it.
    Warning,
    /// A requested operation failed.
    Error,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LogEvent {
    /// Its severity.
    pub(crate) level: Level,
    /// Its name for programs.
    pub(crate) name: &'static str,
    /// Its meaning, in words.
    pub(crate) message: String,
    /// Its details for programs.
    pub(crate) fields: Map<String, Value>,
}

impl LogEvent {
    /// An event without fields.
    pub(crate) fn new(level: Level, name: &'static str, message: impl Into<String>) -> Self {
        let message = explain_line(&message.into()).into_owned();
        Self { level, name, message, fields: Map::new() }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    /// Its line, without the end of line.
    fn line(&self, format: LogFormat, now: &str) -> String {
        match format {
            LogFormat::Text => {
                // The text of an error stays on one line.
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

/// Destination of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventLog(pub(crate) LogFormat);

impl EventLog {
    /// Writes an event. If stderr accepts nothing, as on a full disk, the server continues.
    pub(crate) fn log(self, event: &LogEvent) {
        let line = event.line(self.0, &horolog_record::rfc3339_now());
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_either_form() {
        let event = LogEvent::new(Level::Warning, "reload-refused", "two\nlines \"quoted\"")
            .with("keys", vec!["listen"])
            .with("n", 3);
        assert_eq!(
            event.line(LogFormat::Text, "now"),
            "horolog: warning reload-refused: two lines \"quoted\""
        );
        let line = event.line(LogFormat::Json, "now");
        assert!(!line.contains('\n'));
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "warning");
        assert_eq!(object["event"], "reload-refused");
        assert_eq!(object["message"], "two\nlines \"quoted\"");
        assert_eq!((&object["keys"][0], &object["n"]), (&json!("listen"), &json!(3)));
        assert_eq!(object["time"], "now");
    }
}
