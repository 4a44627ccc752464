//! Columns in groups, as text: one definition gives the header and the rows, so that they cannot
//! fall out of line. What stands in the cells is its caller's business.

/// Between two groups.
const RULE: &str = " | ";

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    pub(crate) left: bool,
}

impl Column {
    /// A column of numbers, flush right.
    pub(crate) const fn right(title: &'static str, width: usize) -> Self {
        Self { title, width, left: false }
    }

    /// A column of words, flush left.
    pub(crate) const fn left(title: &'static str, width: usize) -> Self {
        Self { title, width, left: true }
    }

    fn pad(&self, text: &str) -> String {
        let width = self.width;
        if self.left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// Columns under one title.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) columns: Vec<Column>,
}

impl Group {
    fn width(&self) -> usize {
        let columns: usize = self.columns.iter().map(|column| column.width).sum();
        columns + self.columns.len().saturating_sub(1)
    }
}

/// How a cell is to be marked where colour is wanted; the text alone must say it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Bad,
    Doubt,
}

impl Tone {
    /// The text between the escape sequences of this tone (ECMA-48, SGR).
    pub(crate) fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            _ if !colour => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Strong => "1",
            Self::Bad => "1;31",
            Self::Doubt => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// One cell's text.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Cell {
    /// A cell without a mark.
    pub(crate) const fn plain(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

/// The width of a whole line.
pub(crate) fn width(groups: &[Group]) -> usize {
    let groups_width: usize = groups.iter().map(Group::width).sum();
    groups_width + RULE.len() * groups.len().saturating_sub(1)
}

/// The fields that fit into a width: those of the highest rank are left out first, and those of
/// rank 0 never.
pub(crate) fn fitting<F>(
    mut fields: Vec<F>,
    width_of: impl Fn(&[F]) -> usize,
    rank: impl Fn(&F) -> u8,
    width: usize,
) -> Vec<F> {
    while width_of(&fields) > width {
        let Some(highest) = fields.iter().map(&rank).max().filter(|rank| *rank > 0) else { break };
        fields.retain(|field| rank(field) != highest);
    }
    fields
}

/// The groups' titles above the columns' titles.
pub(crate) fn header(groups: &[Group], colour: bool) -> String {
    let above: Vec<_> =
        groups.iter().map(|group| format!("{:^1$}", group.title, group.width())).collect();
    let titles: Vec<_> = groups
        .iter()
        .map(|group| {
            group
                .columns
                .iter()
                .map(|column| column.pad(column.title))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    [above, titles].map(|line| Tone::Strong.paint(line.join(RULE).trim_end(), colour)).join("\n")
}

/// One row; the cells in the columns' order.
pub(crate) fn row(groups: &[Group], cells: &[Cell], colour: bool) -> String {
    let mut cells = cells.iter();
    let parts: Vec<_> = groups
        .iter()
        .map(|group| {
            let columns = group.columns.iter().zip(cells.by_ref());
            let padded: Vec<_> = columns
                .map(|(column, cell)| cell.tone.paint(&column.pad(&cell.text), colour))
                .collect();
            padded.join(" ")
        })
        .collect();
    parts.join(RULE)
}
