//! A result that was named on the command line: a kept run, or a file.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::path::Path;

use horolog_store::{FactsError, Reference, Store, schema_and_start};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::keep::StoreArgs;

/// A result, as it was named and as it is.
pub(super) struct Given {
    pub(super) reference: String,
    pub(super) schema: String,
    pub(super) started: String,
    pub(super) result: Value,
}

/// Reads results; the store is opened for the first kept one.
pub(super) struct Reader<'a> {
    args: &'a StoreArgs,
    store: Option<Store>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(args: &'a StoreArgs) -> Self {
        Self { args, store: None }
    }

    /// What is named by this: a file where it has a `/` or ends with `.json`, otherwise a run.
    pub(super) fn read(&mut self, name: &str) -> Result<Given, Failure> {
        let path = Path::new(name);
        let is_file = name.contains('/') || path.extension().is_some_and(|of| of == "json");
        let text = if is_file { of_file(path)? } else { self.of_run(name)? };
        let told = |error| Failure::environment(format!("{name}: {}", unsound(&text, &error)));
        let result: Value = serde_json::from_str(&text).map_err(|error| told(error.into()))?;
        let (schema, started) = schema_and_start(&result).map_err(told)?;
        let (schema, started) = (schema.to_owned(), started.to_owned());
        Ok(Given { reference: name.to_owned(), schema, started, result })
    }

    /// Several with commas between them, one at least; a file whose name has a comma is one.
    pub(super) fn read_several(&mut self, names: &str) -> Result<Vec<Given>, Failure> {
        if !names.contains(',') || Path::new(names).is_file() {
            return Ok(vec![self.read(names)?]);
        }
        let all: Vec<Given> =
            names.split(',').map(|name| self.read(name.trim())).collect::<Result<_, _>>()?;
        for (index, one) in all.iter().enumerate() {
            if let Some(same) = all[..index].iter().find(|same| same.result == one.result) {
                return Err(Failure::usage(format!(
                    "'{}' is the same run as '{}'; name each once, since it is no measurement more",
                    one.reference, same.reference
                )));
            }
        }
        Ok(all)
    }

    fn of_run(&mut self, name: &str) -> Result<String, Failure> {
        let reference: Reference = name.parse().map_err(Failure::usage)?;
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(self.args.open_to_read()?),
        };
        Ok(store.result(store.find(&reference)?.id)?)
    }
}

pub(super) fn of_file(path: &Path) -> Result<String, Failure> {
    let cannot = |why: &dyn fmt::Display| {
        Failure::environment(format!("cannot read {}: {why}", path.display()))
    };
    let bytes = fs::read(path).map_err(|error| cannot(&error))?;
    String::from_utf8(bytes).or_else(|error| {
        let sound = error.utf8_error().valid_up_to();
        if error.utf8_error().error_len().is_some() {
            return Err(cannot(&format!("from byte {sound} on it is no text in UTF-8")));
        }
        // It was cut within a character, and is told as whatever is cut.
        let mut bytes = error.into_bytes();
        bytes.truncate(sound);
        String::from_utf8(bytes).map_err(|error| cannot(&error))
    })
}

/// What is wrong with a text that is no result, and what can be read of it all the same.
pub(super) fn unsound(text: &str, error: &FactsError) -> String {
    let fields = readable(text);
    let of = |name: &str| fields.get(name).and_then(Value::as_str);
    let facts = of("schema").filter(|schema| schema.starts_with("horolog.")).map(|schema| {
        let began = of("started").map_or_else(String::new, |began| format!(" of {began}"));
        let names: Vec<_> = fields.keys().map(String::as_str).collect();
        format!("; it begins as a result '{schema}'{began}; whole in it: {}", names.join(", "))
    });
    format!("{error}{}", facts.unwrap_or_default())
}

/// The fields at the beginning of an object that are whole.
fn readable(text: &str) -> Map<String, Value> {
    struct Fields<'a>(&'a RefCell<Map<String, Value>>);
    impl<'de> Visitor<'de> for Fields<'_> {
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
    // Where it ends early is no matter here.
    let _ = serde_json::Deserializer::from_str(text).deserialize_map(Fields(&fields));
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
        assert_eq!(of_file(file.path()).unwrap_or_default(), "{\"schema\": \"");
        fs::write(file.path(), b"{\"\xff\"}").unwrap();
        let said = of_file(file.path()).unwrap_err().to_string();
        assert!(said.contains("from byte 2 on"), "{said}");
    }

    #[test]
    fn what_can_be_read_of_a_cut_result_is_told() {
        let text = r#"{"schema": "horolog.load/1", "started": "2026-01-01T00:00:00Z", "host": {"k"#;
        let cut = serde_json::from_str::<Value>(text).unwrap_err();
        let told = unsound(text, &cut.into());
        assert!(told.contains("'horolog.load/1' of 2026-01-01T00:00:00Z"), "{told}");
        assert!(
            told.contains("it ends too early") && told.ends_with(": schema, started"),
            "{told}"
        );
        let strange = unsound("{\"schema\": \"foo\"}", &FactsError::Schema("foo".to_owned()));
        assert!(!strange.contains("begins"), "{strange}");
        assert_eq!(readable("[1]").len(), 0);
        assert_eq!(readable("").len(), 0);
    }
}
