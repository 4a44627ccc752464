//! JSON text of a result, with the field names of its record.

use serde::Serialize;

/// Returns the value as indented JSON with a newline at its end, as in a result file.
///
/// # Panics
///
/// Never for the types of `horolog_record`; for a type whose `Serialize` fails or whose map keys
/// are not strings.
#[must_use]
pub fn to_json(value: &impl Serialize) -> String {
    let value = in_memory(serde_json::to_string_pretty(value));
    format!("{value}\n")
}

/// Returns the value as JSON on one line, for embedding.
pub(crate) fn to_compact_json(value: &(impl Serialize + ?Sized)) -> String {
    in_memory(serde_json::to_string(value))
}

/// Returns JSON written to memory, which cannot fail: the records' maps have strings or unit
/// variants as keys.
fn in_memory(written: serde_json::Result<String>) -> String {
    #[expect(clippy::expect_used, reason = "a failure is a fault of the type, not of the data")]
    written.expect("a result serialises")
}

#[cfg(test)]
mod tests {
    use horolog_record::LoadResult;

    use super::*;
    use crate::fixture;

    #[test]
    fn reads_back_as_it_was_and_ends_with_a_newline() {
        let result = fixture::load();
        let text = to_json(&result);
        assert!(text.ends_with("}\n"));
        assert!(text.starts_with("{\n  \"schema\": \"horolog.load/2\""));
        assert_eq!(serde_json::from_str::<LoadResult>(&text).unwrap(), result);
    }
}
