//! A table of figures whose rows have names.

use super::escape::{each, text};

/// A table with a name in the first column of every row.
pub(super) fn table(id: &str, label: &str, titles: &[&str], rows: &str) -> String {
    framed(id, label, &format!("<td></td>{}", heads(titles)), rows)
}

/// The same, where the first title says what the names are.
pub(super) fn titled(id: &str, label: &str, titles: &[&str], rows: &str) -> String {
    framed(id, label, &heads(titles), rows)
}

fn heads(titles: &[&str]) -> String {
    each(titles, |title| format!("<th scope=\"col\">{}</th>", text(title)))
}

fn framed(id: &str, label: &str, titles: &str, rows: &str) -> String {
    format!(
        "<div class=\"scroll\" id=\"{id}\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n\
         <table class=\"data\">\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{rows}</tbody>\n\
         </table>\n</div>\n"
    )
}

/// A table of rows with their names, if there are any.
pub(super) fn shown(
    id: &str,
    label: &str,
    titles: &[&str],
    rows: Vec<(String, Vec<String>)>,
) -> String {
    let rows = each(rows, |(name, cells)| row(&name, cells));
    if rows.is_empty() { rows } else { table(id, label, titles, &rows) }
}

pub(super) fn row(name: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells = each(cells, |cell| format!("<td>{}</td>", text(&cell)));
    format!("<tr><th scope=\"row\" class=\"words\">{}</th>{cells}</tr>\n", text(name))
}
