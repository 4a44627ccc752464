//! Data table in which each row has a name.

use super::escape::{each, text};

/// Returns a table without a title of the name column.
pub(crate) fn table(id: &str, label: &str, titles: &[&str], rows: &str) -> String {
    with_corner(id, label, "<td></td>", titles, rows)
}

/// Returns a table with a title for the column of names.
pub(crate) fn headed(id: &str, label: &str, (name, titles): (&str, &[&str]), rows: &str) -> String {
    let corner = format!("<th scope=\"col\" class=\"words\">{}</th>", text(name));
    with_corner(id, label, &corner, titles, rows)
}

fn with_corner(id: &str, label: &str, corner: &str, titles: &[&str], rows: &str) -> String {
    let titles = each(titles, |title| format!("<th scope=\"col\">{}</th>", text(title)));
    format!(
        "<div class=\"scroll\" id=\"{id}\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n\
         <table class=\"data\">\n<thead><tr>{corner}{titles}</tr></thead>\n<tbody>\n{rows}</tbody>\n\
         </table>\n</div>\n"
    )
}

/// Returns a table with a title of the name column; nothing if there are no rows.
pub(crate) fn table_unless_empty(
    id: &str,
    label: &str,
    titles: (&str, &[&str]),
    rows: Vec<(String, Vec<String>)>,
) -> String {
    let rows = each(rows, |(name, cells)| row(&name, cells));
    if rows.is_empty() { rows } else { headed(id, label, titles, &rows) }
}

pub(crate) fn row(name: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells = each(cells, |cell| format!("<td>{}</td>", text(&cell)));
    format!("<tr><th scope=\"row\" class=\"words\">{}</th>{cells}</tr>\n", text(name))
}
