//! Check of full stops in help texts, in the documentation comments from which clap makes them. The
//! other rules of help texts are tested in `crates/cli`, on the definition of the command line,
//! from which clap has removed the full stops.

use anyhow::{Context, Result};
use syn::visit::{self, Visit};

use super::Finding;
use super::files::TextFile;

/// Crate with the command line.
const DIRECTORY: &str = "crates/cli/src/";

pub(super) fn check(files: &[TextFile]) -> Result<Vec<Finding>> {
    let is_source = |file: &&TextFile| file.path.starts_with(DIRECTORY) && file.extension() == "rs";
    let mut findings = Vec::new();
    for file in files.iter().filter(is_source) {
        let syntax = syn::parse_file(&file.text)
            .with_context(|| format!("cannot parse {} as Rust", file.path))?;
        let mut helps = HelpTextLines(Vec::new());
        helps.visit_file(&syntax);
        findings.extend(
            helps.0.into_iter().map(|line| {
                Finding::new(&file.path, line, "a help text has no full stop at its end")
            }),
        );
    }
    Ok(findings)
}

/// Last lines of help texts without a full stop.
struct HelpTextLines(Vec<usize>);

impl HelpTextLines {
    fn add(&mut self, attributes: &[syn::Attribute]) {
        let last = attributes.iter().filter_map(documentation).next_back();
        self.0.extend(last.filter(|(_, text)| !text.ends_with('.')).map(|(line, _)| line));
    }
}

impl<'ast> Visit<'ast> for HelpTextLines {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if item.attrs.iter().any(derives_arguments) {
            self.add(&item.attrs);
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if item.attrs.iter().any(derives_arguments) {
            self.add(&item.attrs);
            item.variants.iter().for_each(|variant| self.add(&variant.attrs));
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if field.attrs.iter().any(|attribute| attribute.path().is_ident("arg")) {
            self.add(&field.attrs);
        }
    }
}

/// Line and text of a documentation comment.
fn documentation(attribute: &syn::Attribute) -> Option<(usize, String)> {
    match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
                Some((text.span().start().line, text.value().trim().to_owned()))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns true for the derives of commands, whose comments are shown as help.
fn derives_arguments(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let tokens = list.tokens.to_string();
    list.path.is_ident("derive")
        && tokens
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| matches!(word, "Args" | "Parser" | "Subcommand"))
}

#[cfg(test)]
mod tests {
    use super::super::{NO_LINES, texts};
    use super::*;

    fn lines(path: &str, source: &str) -> Vec<usize> {
        let found = check(&texts(&[(path, source)])).unwrap();
        found.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn texts_without_a_full_stop_are_found() {
        let source = "/// Send\n#[derive(Args, Debug)]\nstruct A {\n/// Rate\n/// of requests\n\
                      #[arg(long)]\nrate: f64,\n}\n#[derive(Subcommand)]\nenum B {\n/// Stop\nC }\n";
        assert_eq!(lines("crates/cli/src/a.rs", source), [1, 5, 11]);
        assert_eq!(lines("crates/load/src/a.rs", source), NO_LINES);
    }

    #[test]
    fn full_stops_and_other_comments_pass() {
        let source = "/// Send.\n///\n/// At a rate [default: 1].\n#[derive(Args)]\nstruct A {\n\
                      #[arg(long)]\nhidden: f64,\n/// Not help\nflat: B,\n}\n\
                      #[derive(Clone, ValueEnum)]\nenum C {\n/// A value\nD }\n";
        assert_eq!(lines("crates/cli/src/a.rs", source), NO_LINES);
    }
}
