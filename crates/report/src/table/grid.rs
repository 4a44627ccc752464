//! Text tables with columns in groups. Header and rows follow from one definition of the columns,
//! so that they stay aligned; the caller supplies the content of the cells.

use super::TableStyle;

/// Separator between two groups.
const RULE: &str = " | ";

/// Column of a text table: title, width and alignment.
#[derive(Clone, Debug)]
pub(crate) struct GridColumn<'a> {
    pub(crate) title: &'a str,
    pub(crate) width: usize,
    pub(crate) left: bool,
}

/// Maximum width of a column: text is padded to 65,535 columns at most, and a line has several.
const WIDTH_MAX: usize = 4_000;

const fn bounded(width: usize) -> usize {
    if width < WIDTH_MAX { width } else { WIDTH_MAX }
}

impl<'a> GridColumn<'a> {
    /// Creates a right-aligned column, for numbers.
    pub(crate) const fn right(title: &'a str, width: usize) -> Self {
        Self { title, width: bounded(width), left: false }
    }

    /// Creates a left-aligned column, for words.
    pub(crate) const fn left(title: &'a str, width: usize) -> Self {
        Self { title, width: bounded(width), left: true }
    }

    /// Aligns text within the column; longer text is not cut.
    fn pad(&self, text: &str) -> String {
        let width = self.width;
        if self.left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// Columns under one title.
#[derive(Clone, Debug)]
pub(crate) struct GridColumnGroup<'a> {
    pub(crate) title: &'static str,
    pub(crate) columns: Vec<GridColumn<'a>>,
}

impl GridColumnGroup<'_> {
    fn width(&self) -> usize {
        let columns: usize = self.columns.iter().map(|column| column.width).sum();
        columns + self.columns.len().saturating_sub(1)
    }
}

/// Emphasis of a cell by colour; the text must be complete without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellTone {
    Plain,
    Strong,
    Bad,
    Warning,
}

impl CellTone {
    /// Tones other than [`Self::Plain`].
    const COLOURED: [Self; 3] = [Self::Strong, Self::Bad, Self::Warning];

    /// Returns the text between the escape sequences of this tone (ECMA-48, SGR).
    pub(crate) fn paint(self, text: &str, colour: bool) -> String {
        let sequence = self.sequence();
        if !colour || sequence.is_empty() {
            return text.to_owned();
        }
        format!("\x1b{sequence}{text}\x1b{RESET}")
    }

    /// Returns the sequence that begins this tone, without its escape character.
    const fn sequence(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "[1m",
            Self::Bad => "[1;31m",
            Self::Warning => "[33m",
        }
    }
}

/// Sequence that ends a tone, without its escape character.
const RESET: &str = "[0m";

/// Returns lines without their control characters, which could move the cursor, since a result may
/// come from another host. The escape sequences of tones remain if there is `colour`.
pub(crate) fn without_control_chars(lines: &str, colour: bool) -> String {
    let is_tone = |piece: &str| {
        let begins = |tone: CellTone| piece.starts_with(tone.sequence());
        piece.starts_with(RESET) || CellTone::COLOURED.into_iter().any(begins)
    };
    let mut printable = String::with_capacity(lines.len());
    for (index, piece) in lines.split('\x1b').enumerate() {
        if index > 0 && colour && is_tone(piece) {
            printable.push('\x1b');
        }
        printable.extend(piece.chars().filter(|c| *c == '\n' || !c.is_control()));
    }
    printable
}

/// Text and emphasis of a cell.
#[derive(Clone, Debug)]
pub(crate) struct GridCell {
    pub(crate) text: String,
    pub(crate) tone: CellTone,
}

impl GridCell {
    /// Creates a cell without emphasis.
    pub(crate) const fn plain(text: String) -> Self {
        Self { text, tone: CellTone::Plain }
    }
}

/// Returns the total width of all groups in characters, with the separators between them.
pub(crate) fn width(groups: &[GridColumnGroup<'_>]) -> usize {
    let groups_width: usize = groups.iter().map(GridColumnGroup::width).sum();
    groups_width + RULE.len() * groups.len().saturating_sub(1)
}

/// Returns the columns that fit into a width. Those of the highest rank are omitted first; rank 0
/// is never omitted.
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

/// Returns the titles of the groups, and the titles of the columns on the next line.
pub(crate) fn header(groups: &[GridColumnGroup<'_>], colour: bool) -> String {
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
    [above, titles]
        .map(|line| CellTone::Strong.paint(line.join(RULE).trim_end(), colour))
        .join("\n")
}

/// Returns one row; the cells in the columns' order.
pub(crate) fn row(groups: &[GridColumnGroup<'_>], cells: &[GridCell], colour: bool) -> String {
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

/// Returns a table with a name column. If the columns do not fit, they continue in further blocks,
/// each of which repeats the names in the narrower column; a name that is too long has its own
/// line. No column is omitted.
pub(crate) fn blocks(
    [name, narrower]: [GridColumn<'_>; 2],
    columns: &[GridColumn<'_>],
    rows: &[(String, Vec<String>)],
    style: &TableStyle,
) -> Vec<String> {
    let whole = columns.iter().fold(name.width, |sum, column| sum + 1 + column.width);
    let name = if whole <= style.width { name } else { narrower };
    let mut lines = Vec::new();
    let mut begin = 0;
    while begin < columns.len() {
        let mut room = style.width.saturating_sub(name.width);
        let mut fits = |column: &&GridColumn<'_>| {
            let is_room = room > column.width;
            room = room.saturating_sub(column.width + 1);
            is_room
        };
        // A column that is too wide for a block gets its own block.
        let end = begin + columns[begin..].iter().take_while(&mut fits).count().max(1);
        if begin > 0 {
            lines.push(String::new());
        }
        let shown = [std::slice::from_ref(&name), &columns[begin..end]].concat();
        let group = [GridColumnGroup { title: "", columns: shown }];
        lines.extend(header(&group, style.colour).lines().skip(1).map(str::to_owned));
        for (text, figures) in rows {
            let is_long = text.chars().count() > name.width;
            let name_cell = if is_long { String::new() } else { text.clone() };
            lines.extend(is_long.then(|| text.clone()));
            let cells = [&[name_cell], &figures[begin..end]].concat();
            let cells: Vec<_> = cells.into_iter().map(GridCell::plain).collect();
            lines.push(row(&group, &cells, style.colour));
        }
        begin = end;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: usize) -> Vec<String> {
        let names = [GridColumn::left("system against", 14), GridColumn::left("against", 7)];
        let columns = ["mean", "min", "max"].map(|title| GridColumn::right(title, 6));
        let figures = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        let rows = [
            ("raw".to_owned(), figures(["1 ns", "2 ns", "3 ns"])),
            ("/dev/ptp0".to_owned(), figures(["4 ns", "5 ns", "6 ns"])),
        ];
        blocks(names, &columns, &rows, &TableStyle { colour: false, width })
    }

    #[test]
    fn columns_that_fit_next_to_the_names_are_one_block() {
        let expected = [
            "system against   mean    min    max",
            "raw              1 ns   2 ns   3 ns",
            "/dev/ptp0        4 ns   5 ns   6 ns",
        ];
        assert_eq!(drawn(35), expected);
        assert_eq!(drawn(usize::MAX), expected);
    }

    #[test]
    fn no_column_is_lost_where_it_is_narrow() {
        let narrow = [
            "against   mean    min",
            "raw       1 ns   2 ns",
            "/dev/ptp0",
            "          4 ns   5 ns",
            "",
            "against    max",
            "raw       3 ns",
            "/dev/ptp0",
            "          6 ns",
        ];
        assert_eq!(drawn(27), narrow);
        assert_eq!(drawn(0).iter().filter(|line| line.contains(" ns")).count(), 6);
    }
}
