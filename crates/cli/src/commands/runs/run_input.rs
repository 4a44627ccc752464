//! Reading of results that are named on the command line: stored runs or result files.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::path::Path;

use horolog_store::{ResultFactsError, RunReference, Store, schema_and_start};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::failure::CommandFailure;
use crate::result_store::StoreArgs;

/// Result read from the store or a file, with its name on the command line.
pub(super) struct ReferencedResult {
    pub(super) reference: String,
    pub(super) schema: String,
    pub(super) started: String,
    pub(super) result: Value,
}

/// Reader of named results. It opens the store when the first stored run is read.
pub(super) struct ResultReader<'a> {
    args: &'a StoreArgs,
    store: Option<Store>,
}

impl<'a> ResultReader<'a> {
    pub(super) const fn new(args: &'a StoreArgs) -> Self {
        Self { args, store: None }
    }

    /// Reads the named result: a file if the name has a `/` or ends with `.json`, otherwise a run.
    pub(super) fn read(&mut self, name: &str) -> Result<ReferencedResult, CommandFailure> {
        let path = Path::new(name);
        let is_file = name.contains('/') || path.extension().is_some_and(|of| of == "json");
        let text = if is_file { read_result_file(path)? } else { self.read_stored_run(name)? };
        let failure = |error| {
            CommandFailure::environment(format!(
                "{name}: {}",
                describe_invalid_result(&text, &error)
            ))
        };
        let result: Value = serde_json::from_str(&text).map_err(|error| failure(error.into()))?;
        let (schema, started) = schema_and_start(&result).map_err(failure)?;
        let (schema, started) = (schema.to_owned(), started.to_owned());
        Ok(ReferencedResult { reference: name.to_owned(), schema, started, result })
    }

    /// Reads the results of a list of names separated by commas. The name of an existing file is
    /// not split at its commas. It is an error if two results are equal.
    pub(super) fn read_several(
        &mut self,
        names: &str,
    ) -> Result<Vec<ReferencedResult>, CommandFailure> {
        if !names.contains(',') || Path::new(names).is_file() {
            return Ok(vec![self.read(names)?]);
        }
        let all: Vec<ReferencedResult> =
            names.split(',').map(|name| self.read(name.trim())).collect::<Result<_, _>>()?;
        for (index, one) in all.iter().enumerate() {
            if let Some(same) = all[..index].iter().find(|same| same.result == one.result) {
                return Err(CommandFailure::usage(format!(
                    "'{}' is the same run as '{}'; give each run once",
                    one.reference, same.reference
                )));
            }
        }
        Ok(all)
    }

    fn read_stored_run(&mut self, name: &str) -> Result<String, CommandFailure> {
        let reference: RunReference = name.parse().map_err(CommandFailure::usage)?;
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(self.args.open_to_read()?),
        };
        Ok(store.result(store.find(&reference)?.id)?)
    }
}

pub(super) fn read_result_file(path: &Path) -> Result<String, CommandFailure> {
    let cannot = |why: &dyn fmt::Display| {
        CommandFailure::environment(format!("cannot read {}: {why}", path.display()))
    };
    let bytes = fs::read(path).map_err(|error| cannot(&error))?;
    String::from_utf8(bytes).or_else(|error| {
        let sound = error.utf8_error().valid_up_to();
        if error.utf8_error().error_len().is_some() {
            return Err(cannot(&format!("not UTF-8 from byte {sound} on")));
        }
        // Cut within a character: dropped here, so that the parser reports a truncated result.
        let mut bytes = error.into_bytes();
        bytes.truncate(sound);
        String::from_utf8(bytes).map_err(|error| cannot(&error))
    })
}

/// Describes why a text is not a valid result and, if it starts as one, which of its fields are
/// complete.
pub(super) fn describe_invalid_result(text: &str, error: &ResultFactsError) -> String {
    let fields = readable_fields(text);
    let of = |name: &str| fields.get(name).and_then(Value::as_str);
    let facts = of("schema").filter(|schema| schema.starts_with("horolog.")).map(|schema| {
        let began = of("started").map_or_else(String::new, |began| format!(" of {began}"));
        let names: Vec<_> = fields.keys().map(String::as_str).collect();
        format!("; it starts as a result '{schema}'{began}; complete fields: {}", names.join(", "))
    });
    format!("{error}{}", facts.unwrap_or_default())
}

/// Returns the complete fields at the beginning of a truncated JSON object.
fn readable_fields(text: &str) -> Map<String, Value> {
    struct FieldsVisitor<'a>(&'a RefCell<Map<String, Value>>);
    impl<'de> Visitor<'de> for FieldsVisitor<'_> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some((name, value)) = map.next_entry()? {
                self.0.borrow_mut().insert(name, value);
            }
            Ok(())
        }
    }
    let fields = RefCell::default();
    // The error at the truncated end is ignored.
    let _ = serde_json::Deserializer::from_str(text).deserialize_map(FieldsVisitor(&fields));
    fields.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_within_a_character_is_read_up_to_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "{\"schema\": \"ü";
        fs::write(file.path(), &text.as_bytes()[..text.len() - 1]).unwrap();
        assert_eq!(read_result_file(file.path()).unwrap_or_default(), "{\"schema\": \"");
        fs::write(file.path(), b"{\"\xff\"}").unwrap();
        let error = read_result_file(file.path()).unwrap_err().to_string();
        assert!(error.contains("from byte 2 on"), "{error}");
    }

    #[test]
    fn readable_part_of_a_truncated_result_is_reported() {
        let text = r#"{"schema": "horolog.load/2", "started": "2026-01-01T00:00:00Z", "host": {"k"#;
        let cut = serde_json::from_str::<Value>(text).unwrap_err();
        let message = describe_invalid_result(text, &cut.into());
        assert!(message.contains("'horolog.load/2' of 2026-01-01T00:00:00Z"), "{message}");
        assert!(
            message.contains("it is truncated") && message.ends_with(": schema, started"),
            "{message}"
        );
        let strange = describe_invalid_result(
            "{\"schema\": \"foo\"}",
            &ResultFactsError::Schema("foo".to_owned()),
        );
        assert!(!strange.contains("begins"), "{strange}");
        assert_eq!(readable_fields("[1]").len(), 0);
        assert_eq!(readable_fields("").len(), 0);
    }
}
