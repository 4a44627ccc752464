//! What a server tells while it runs: one line on stderr for each event, as text or as JSON, with
//! a level, the event's name and fields. Events are changes of state, so there are few; nothing is
//! told for a packet. A library for tracing would bring spans and filters that nothing here needs.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: one JSON object in each line.
    Json,
}

/// How much an event matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// As it should be.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Something was asked for and is not done.
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
pub(crate) struct Event {
    /// How much it matters.
    pub(crate) level: Level,
    /// What programs know it by.
    pub(crate) name: &'static str,
    /// What it means, in words.
    pub(crate) message: String,
    /// What programs may want to know.
    pub(crate) fields: Map<String, Value>,
}

impl Event {
    /// An event without fields.
    pub(crate) fn new(level: Level, name: &'static str, message: impl Into<String>) -> Self {
        Self { level, name, message: message.into(), fields: Map::new() }
    }

    /// The same with one more field.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    /// Its line, without the end of line.
    fn line(&self, format: Format, now: &str) -> String {
        match format {
            Format::Text => {
                // Whatever an error's text holds, it stays one line.
                let message = self.message.replace(['\n', '\r'], " ");
                format!("horolog: {} {}: {message}", self.level.name(), self.name)
            }
            Format::Json => {
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

/// Where events go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log(pub(crate) Format);

impl Log {
    /// Tells an event. Where stderr takes nothing, as on a full disk, the server goes on.
    pub(crate) fn tell(self, event: &Event) {
        let line = event.line(self.0, &horolog_record::rfc3339_now());
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_either_form() {
        let event = Event::new(Level::Warning, "reload-refused", "two\nlines \"quoted\"")
            .with("keys", vec!["listen"])
            .with("n", 3);
        assert_eq!(
            event.line(Format::Text, "now"),
            "horolog: warning reload-refused: two lines \"quoted\""
        );
        let line = event.line(Format::Json, "now");
        assert!(!line.contains('\n'));
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "warning");
        assert_eq!(object["event"], "reload-refused");
        assert_eq!(object["message"], "two\nlines \"quoted\"");
        assert_eq!((&object["keys"][0], &object["n"]), (&json!("listen"), &json!(3)));
        assert_eq!(object["time"], "now");
    }
}
