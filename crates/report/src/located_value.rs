//! Deserialisation of a JSON value, with the path to the value at which it fails. The path is
//! collected only while an error returns, so that it costs a successful deserialisation nothing.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// Deserialises a value. An error names the path of the value within that does not fit.
pub fn deserialize<R: DeserializeOwned>(value: &Value) -> Result<R, LocatedError> {
    R::deserialize(LocatedValue { value, segment: PathSegment::Root })
}

/// Error at a value within a JSON value, such as `trials[0].sent: invalid type: ...`.
#[derive(Debug)]
pub struct LocatedError {
    /// Path of the value, such as `trials[0].sent`; empty at the root.
    path: String,
    what: String,
}

impl LocatedError {
    /// Returns the error with `segment` before its path.
    fn within(mut self, segment: PathSegment<'_>) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = match segment {
            PathSegment::Root => self.path,
            PathSegment::Field(name) => format!("{name}{separator}{}", self.path),
            PathSegment::Element(index) => format!("[{index}]{separator}{}", self.path),
        };
        self
    }
}

impl fmt::Display for LocatedError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, what } = self;
        if path.is_empty() { out.write_str(what) } else { write!(out, "{path}: {what}") }
    }
}

impl std::error::Error for LocatedError {}

impl de::Error for LocatedError {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self { path: String::new(), what: what.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        // JSON's name for a unit.
        let found = if found == Unexpected::Unit { Unexpected::Other("null") } else { found };
        Self::custom(format_args!("invalid type: {found}, expected {expected}"))
    }
}

/// Position of a value in the one that contains it.
#[derive(Clone, Copy)]
enum PathSegment<'v> {
    /// The outermost value.
    Root,
    Field(&'v str),
    Element(usize),
}

#[derive(Clone, Copy)]
struct LocatedValue<'v> {
    value: &'v Value,
    segment: PathSegment<'v>,
}

impl<'v> LocatedValue<'v> {
    fn visit<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, LocatedError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(elements) => visit_elements(elements, visitor),
            Value::Object(fields) => visitor.visit_map(located_fields(fields)),
        }
    }
}

fn visit_elements<'v, V: Visitor<'v>>(
    elements: &'v [Value],
    visitor: V,
) -> Result<V::Value, LocatedError> {
    let located = |(index, value)| LocatedValue { value, segment: PathSegment::Element(index) };
    let mut elements = SeqDeserializer::new(elements.iter().enumerate().map(located));
    let visited = visitor.visit_seq(&mut elements)?;
    // More elements than the type has are an error.
    elements.end().map(|()| visited)
}

fn located_fields<'v>(
    fields: &'v Map<String, Value>,
) -> MapDeserializer<'v, impl Iterator<Item = (&'v str, LocatedValue<'v>)>, LocatedError> {
    let located = |(name, value): (&'v String, &'v Value)| {
        (name.as_str(), LocatedValue { value, segment: PathSegment::Field(name) })
    };
    MapDeserializer::new(fields.iter().map(located))
}

impl<'v> Deserializer<'v> for LocatedValue<'v> {
    type Error = LocatedError;

    fn deserialize_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, LocatedError> {
        self.visit(visitor).map_err(|error| error.within(self.segment))
    }

    fn deserialize_option<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, LocatedError> {
        // What `Some` contains adds the segment to its own errors.
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'v>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, LocatedError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'v>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, LocatedError> {
        let visited = match self.value {
            Value::String(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Object(fields) if fields.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(located_fields(fields)))
            }
            Value::Object(_) => {
                Err(de::Error::invalid_value(Unexpected::Map, &"a map with a single key"))
            }
            _ => self.visit(visitor),
        };
        visited.map_err(|error| error.within(self.segment))
    }

    forward_to_deserialize_any! {
        <W: Visitor<'v>>
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'v> IntoDeserializer<'v, LocatedError> for LocatedValue<'v> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Plain,
        Sized(u8),
        Named { length: f64 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Text(String);

    #[derive(Debug, PartialEq, Deserialize)]
    struct Whole {
        kinds: Vec<Kind>,
        name: Option<Text>,
        pair: (i64, bool),
        #[serde(default)]
        counts: BTreeMap<String, u32>,
    }

    fn whole() -> Value {
        json!({
            "kinds": ["plain", {"sized": 3}, {"named": {"length": 2}}],
            "name": "one",
            "pair": [-1, true],
            "counts": {"a": 1},
            "unknown": [1, [2], null],
        })
    }

    fn error_with(pointer: &str, value: Value) -> String {
        let mut changed = whole();
        *changed.pointer_mut(pointer).unwrap() = value;
        deserialize::<Whole>(&changed).unwrap_err().to_string()
    }

    #[test]
    fn all_forms_are_deserialized() {
        let expected = serde_json::from_value::<Whole>(whole()).unwrap();
        assert_eq!(deserialize::<Whole>(&whole()).unwrap(), expected);
        let mut nameless = whole();
        nameless["name"] = Value::Null;
        assert_eq!(deserialize::<Whole>(&nameless).unwrap().name, None);
    }

    #[test]
    fn an_error_names_its_path() {
        for (pointer, value, error) in [
            ("/pair/1", json!(2), "pair[1]: invalid type: integer `2`, expected a boolean"),
            ("/counts/a", json!(-2), "counts.a: invalid value: integer `-2`, expected u32"),
            ("/name", json!(3), "name: invalid type: integer `3`, expected a string"),
            ("/pair", Value::Null, "pair: invalid type: null, expected a tuple of size 2"),
            ("/kinds/1", json!({"sized": 300}), "kinds[1].sized: invalid value: integer `300`"),
            ("/kinds/2/named/length", json!("x"), "kinds[2].named.length: invalid type: string"),
            ("/kinds/0", json!("other"), "kinds[0]: unknown variant `other`, expected one of"),
            ("/kinds/0", json!(1.5), "kinds[0]: invalid type: floating point `1.5`, expected"),
            (
                "/kinds/1",
                json!({}),
                "kinds[1]: invalid value: map, expected a map with a single key",
            ),
            ("", json!({"name": null}), "missing field `kinds`"),
        ] {
            let found = error_with(pointer, value);
            assert!(found.starts_with(error), "{found}");
        }
    }

    #[test]
    fn surplus_elements_are_refused() {
        let error = error_with("/pair", json!([1, true, 2]));
        assert!(error.starts_with("pair: invalid length 3"), "{error}");
    }
}
