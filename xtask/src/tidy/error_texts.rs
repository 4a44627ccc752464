//! Check of error texts: `#[error("…")]`, `bail!` and `ensure!`. A text is one line of the form
//! `what failed: why; hint`. Texts that are built otherwise are not found.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::test_items::is_test;

/// Openings that do not name the thing that failed.
const OPENINGS: [&str; 5] = ["there is no", "there are no", "nobody", "it", "who"];

/// Returns the error texts that break the rule, each with its line and the reason.
pub(super) fn violations(syntax: &syn::File) -> Vec<(usize, String)> {
    let mut texts = ErrorTexts(Vec::new());
    texts.visit_file(syntax);
    texts.0.into_iter().filter_map(|(line, text)| Some((line, violation(&text)?))).collect()
}

/// Returns the reason for which a text breaks the rule.
fn violation(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let quoted = || text.chars().take(40).collect::<String>();
    let opens = |opening: &&&str| {
        let rest = lower.strip_prefix(**opening);
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    if let Some(opening) = OPENINGS.iter().find(opens) {
        return Some(format!("error '{}' opens with '{opening}': name what failed", quoted()));
    }
    let mut parts = text.split(';');
    let (_, hint, rest) = (parts.next(), parts.next(), parts.next());
    if rest.is_some() {
        return Some(format!("error '{}' has several ';': one, before the hint", quoted()));
    }
    hint.is_some_and(|hint| hint.trim().is_empty())
        .then(|| format!("error '{}' has no hint after its ';'", quoted()))
}

/// Lines and texts of a file's errors outside of tests.
struct ErrorTexts(Vec<(usize, String)>);

impl ErrorTexts {
    fn add(&mut self, literal: &proc_macro2::Literal) {
        if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
            self.0.push((literal.span().start().line, text.value()));
        }
    }

    /// Adds the text of `bail!("…")`, or that of `ensure!(condition, "…")`.
    fn add_from(&mut self, tokens: TokenStream, follows_comma: bool) {
        let mut is_next = !follows_comma;
        for token in tokens {
            match token {
                TokenTree::Literal(literal) if is_next => return self.add(&literal),
                TokenTree::Punct(punct) => is_next = punct.as_char() == ',',
                // Delimiters of a literal that a macro passes on are invisible.
                TokenTree::Group(group) if group.delimiter() == Delimiter::None => {}
                _ => is_next = false,
            }
        }
    }
}

impl<'ast> Visit<'ast> for ErrorTexts {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta
            && list.path.is_ident("error")
        {
            self.add_from(list.tokens.clone(), false);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string());
        match name.as_deref() {
            Some("bail") => self.add_from(call.tokens.clone(), false),
            Some("ensure") => self.add_from(call.tokens.clone(), true),
            _ => {}
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str) -> Vec<usize> {
        violations(&syn::parse_file(source).unwrap()).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn texts_that_break_the_rule_are_found_in_each_form() {
        let source = "#[derive(Error)]\nenum E {\n#[error(\"there is no {0}\")]\nA(u8),\n\
                      #[error(\"it failed\")]\nB }\n\
                      fn f() -> Result<()> {\nbail!(\"Nobody answers\");\n\
                      ensure!(a == \"it is\", \"who: {a}\");\nanyhow::ensure!(b, \"a: b; c; d\");\n\
                      if c { bail!(\"a: b;\") }\n}\n";
        assert_eq!(lines(source), [3, 5, 8, 9, 10, 11]);
    }

    #[test]
    fn texts_that_follow_the_rule_pass() {
        let source = "enum E {\n#[error(\"cannot bind {0}: in use; choose another\")]\nA(u8),\n\
                      #[error(transparent)]\nB(C), #[error(\"items: none\")] D }\n\
                      fn f() {\nensure!(a.is(\"it is\"));\nensure!(b == \"it is\", \"b differs\");\n\
                      bail!(error);\nprintln!(\"it is; a; b\");\n}\n\
                      #[cfg(test)]\nmod tests { fn g() { bail!(\"it is\") } }\n";
        assert_eq!(lines(source), super::super::NO_LINES);
    }
}
