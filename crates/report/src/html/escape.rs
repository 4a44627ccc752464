//! Escaping of a result's text in the page, as text and as embedded JSON, and concatenation of
//! markup.

/// Escapes text for an element or for an attribute in quotes.
pub(crate) fn text(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len());
    for character in raw.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // HTML does not allow NUL.
            '\0' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Escapes JSON for a script element. Only `<` can end the element or start a comment there; in
/// JSON it occurs only in strings and is replaced by an equivalent escape sequence.
pub(crate) fn json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Returns the concatenated markup of all items.
pub(crate) fn each<T>(
    items: impl IntoIterator<Item = T>,
    markup: impl FnMut(T) -> String,
) -> String {
    items.into_iter().map(markup).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_has_no_markup_left() {
        assert_eq!(
            text("a<b> & \"c\" 'd'\0"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}"
        );
    }

    proptest! {
        #[test]
        fn json_means_the_same_and_cannot_end_the_script(raw: String) {
            let raw = format!("</script>{raw}<!--");
            let escaped = json(&serde_json::to_string(&raw).unwrap());
            prop_assert!(!escaped.contains('<'));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), raw);
        }
    }
}
