//! Parser of a small subset of YAML: mappings and lists by indentation, scalars on one line, texts
//! of several lines after `|`, lists of quoted words in brackets. All other syntax is an error, and
//! so is a duplicate key. The subset suffices for readable manifests.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// Line of the text with its indentation in columns and its number, from 1.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    indent: usize,
    text: &'a str,
    number: usize,
}

/// Parses the documents of a text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    let lines: Vec<_> = (1..)
        .zip(text.lines())
        .map(|(number, line)| {
            let text = line.trim_start_matches(' ');
            Line { indent: line.len() - text.len(), text: text.trim_end(), number }
        })
        .collect();
    ensure!(!text.contains('\t'), "tabs are not supported");
    lines.split(|line| line.text == "---").map(document).collect()
}

/// Returns the strings of a list.
pub(crate) fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn has_content(line: &Line<'_>) -> bool {
    !line.text.is_empty() && !line.text.starts_with('#')
}

fn document(lines: &[Line<'_>]) -> Result<Value> {
    let (value, left) = block(lines, 0)?;
    match left.iter().find(|line| has_content(line)) {
        Some(line) => bail!("line {}: '{}' is out of place", line.number, line.text),
        None => Ok(value),
    }
}

/// Parses a block indented by at least `least` columns, and returns the lines after it.
fn block<'a, 'b>(lines: &'b [Line<'a>], least: usize) -> Result<(Value, &'b [Line<'a>])> {
    let Some(first) =
        lines.iter().find(|line| has_content(line)).filter(|line| line.indent >= least)
    else {
        return Ok((Value::Null, lines));
    };
    if first.text.starts_with("- ") { list(lines, first.indent) } else { map(lines, first.indent) }
}

fn list<'a, 'b>(mut lines: &'b [Line<'a>], indent: usize) -> Result<(Value, &'b [Line<'a>])> {
    let mut items = Vec::new();
    while let Some(at) = lines.iter().position(has_content) {
        let line = lines[at];
        let Some(text) = line.text.strip_prefix("- ").filter(|_| line.indent == indent) else {
            break;
        };
        // The text after the hyphen has the indentation of the lines that follow it.
        let first = Line { indent: indent + 2, text, number: line.number };
        if key(text).is_none() {
            items.push(scalar(first)?);
            lines = &lines[at + 1..];
            continue;
        }
        let rest = &lines[at + 1..];
        let inside = rest.iter().position(|line| has_content(line) && line.indent <= indent);
        let (inside, left) = rest.split_at(inside.unwrap_or(rest.len()));
        items.push(document(&[&[first], inside].concat())?);
        lines = left;
    }
    Ok((items.into(), lines))
}

/// Splits a line into a key and the text after it.
fn key(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = text.split_once(':')?;
    let is_key = !key.is_empty() && !key.contains([' ', '"', '[', '{']) && !key.starts_with('-');
    (is_key && (rest.is_empty() || rest.starts_with(' '))).then(|| (key, rest.trim()))
}

fn map<'a, 'b>(mut lines: &'b [Line<'a>], indent: usize) -> Result<(Value, &'b [Line<'a>])> {
    let mut fields = Map::new();
    while let Some(at) = lines.iter().position(has_content) {
        let line = lines[at];
        if line.indent < indent || line.text.starts_with("- ") {
            break;
        }
        ensure!(line.indent == indent, "line {}: unexpected indentation", line.number);
        let (name, rest) = key(line.text)
            .with_context(|| format!("line {}: '{}' has no key", line.number, line.text))?;
        lines = &lines[at + 1..];
        let value = match rest {
            "" => {
                let (value, left) = block(lines, indent + 1)?;
                lines = left;
                value
            }
            "|" => {
                let end = lines.iter().position(|line| has_content(line) && line.indent <= indent);
                let (inside, left) = lines.split_at(end.unwrap_or(lines.len()));
                lines = left;
                inside.iter().map(|line| line.text).collect::<Vec<_>>().join("\n").into()
            }
            text => scalar(Line { text, ..line })?,
        };
        let before = fields.insert(name.to_owned(), value);
        ensure!(before.is_none(), "line {}: duplicate key '{name}'", line.number);
    }
    Ok((fields.into(), lines))
}

fn scalar(line: Line<'_>) -> Result<Value> {
    let text = line.text;
    let wrong = || format!("line {}: unsupported value '{text}'", line.number);
    if text == "{}" {
        return Ok(Map::new().into());
    }
    if text.starts_with(['"', '[']) {
        return serde_json::from_str(text).with_context(wrong);
    }
    ensure!(!text.starts_with(['&', '*', '!', '{', '>', '\'', '%', '@', '`']), wrong());
    ensure!(!text.contains(" #") && !text.contains(": "), wrong());
    Ok(match text {
        "true" => true.into(),
        "false" => false.into(),
        text => text.into(),
    })
}
