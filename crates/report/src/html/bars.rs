//! Table of bars. Two numbers accompany each bar, so that readers need not estimate its length.

use super::escape::text;

/// Returns the table. The first title is that of the rows' names, and the last one is above the
/// bars.
pub(crate) fn table(titles: [&str; 4], rows: &str) -> String {
    let [name, first, second, bar] = titles.map(text);
    format!(
        "<table class=\"bars\">\n<thead><tr><th scope=\"col\">{name}</th>\
         <th scope=\"col\" class=\"number\">{first}</th>\
         <th scope=\"col\" class=\"number\">{second}</th>\
         <td class=\"track\">{bar}</td></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    )
}

/// Returns a row with a name, two numbers, and a [`bar`] or other markup.
pub(crate) fn row(name: &str, numbers: [&str; 2], drawn: &str) -> String {
    named(&text(name), numbers, drawn)
}

/// Returns a row for the metric at a path; the path wraps only between its parts.
pub(crate) fn path_row(path: &str, numbers: [&str; 2], drawn: &str) -> String {
    let breakable = |name: String, sign: &char| name.replace(*sign, &format!("{sign}<wbr>"));
    named(&['.', '_'].iter().fold(text(path), breakable), numbers, drawn)
}

fn named(name: &str, numbers: [&str; 2], drawn: &str) -> String {
    let [first, second] = numbers.map(text);
    format!(
        "<tr><th scope=\"row\">{name}</th><td class=\"number\">{first}</td>\
         <td class=\"number less\">{second}</td>\
         <td class=\"track\" aria-hidden=\"true\">{drawn}</td></tr>\n",
    )
}

/// Returns a bar of a share from 0 to 1; none for an unknown one.
pub(crate) fn bar(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| {
        let width = 100.0 * share.clamp(0.0, 1.0);
        format!("<span class=\"bar\" style=\"width:{width:.2}%\"></span>")
    })
}
