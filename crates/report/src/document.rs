//! Result as a document: what it shows, in the order in which it is read, independent of the form.
//! Each kind describes itself once, in `kinds`; the terminal's text and the HTML page are made of
//! that here.

mod page;
mod terminal;

use std::borrow::Cow;

use horolog_record::{Distribution, Finding, Host, LimitResult};

use crate::facts::FactGroup;
use crate::html::plot::Plot;
use crate::table::TableStyle;

/// Kind of result that describes itself.
pub(crate) trait Describe: serde::Serialize {
    /// Returns its content.
    fn document(&self) -> Document<'_>;

    /// Returns the part of it that a page embeds; `None` for all of it.
    fn embedded(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Returns the content as a section of a page with others, with its plots.
    fn part(&self, heading: &str) -> (String, Vec<Plot>) {
        page::part(&self.document(), heading)
    }
}

/// Forms of a result.
pub trait Render {
    /// Returns the lines for the terminal, without a newline at the end.
    fn text(&self, style: &TableStyle) -> String;

    /// Returns the page as HTML. It holds the whole result as JSON in the element `result`.
    fn page(&self) -> String;
}

impl<R: Describe> Render for R {
    fn text(&self, style: &TableStyle) -> String {
        terminal::text(&self.document(), style)
    }

    fn page(&self) -> String {
        match self.embedded() {
            Some(part) => page::page(&self.document(), &part),
            None => page::page(&self.document(), self),
        }
    }
}

/// Content of a result.
pub(crate) struct Document<'a> {
    /// Command that measures it: `host switch`.
    pub(crate) kind: &'static str,
    pub(crate) heading: String,
    /// Extent of the measurement, and its start.
    pub(crate) lead: String,
    pub(crate) headline: Headline,
    pub(crate) blocks: Vec<DocumentBlock<'a>>,
    /// Definitions of the metrics.
    pub(crate) method: &'static str,
    pub(crate) limits: &'a [LimitResult],
    pub(crate) findings: &'a [Finding],
    pub(crate) run: RunFacts<'a>,
}

/// Most informative metric of a result, and a sentence.
pub(crate) struct Headline {
    pub(crate) name: String,
    /// `None` if it was not measured.
    pub(crate) value: Option<String>,
    pub(crate) sentence: String,
}

/// Names and values; those without a value are not shown.
pub(crate) type NamedFacts = Vec<(&'static str, Option<String>)>;

/// Conditions under which a result was measured, the last section of a page.
pub(crate) struct RunFacts<'a> {
    pub(crate) heading: &'static str,
    /// Facts before the command, and after its start.
    pub(crate) before: NamedFacts,
    pub(crate) after: NamedFacts,
    /// Facts in a list next to these.
    pub(crate) second_list: NamedFacts,
    pub(crate) schema: &'a str,
    pub(crate) command: &'a [String],
    pub(crate) started: &'a str,
    pub(crate) host: &'a Host,
}

/// Returns the [`RunFacts`] of a result, whose fields have these names in all kinds.
macro_rules! run_of {
    ($result:expr) => {
        crate::document::RunFacts {
            heading: "Run and host",
            before: Vec::new(),
            after: Vec::new(),
            second_list: Vec::new(),
            schema: &$result.schema,
            command: &$result.command,
            started: &$result.started,
            host: &$result.host,
        }
    };
}
pub(crate) use run_of;

/// Part of a document. Blocks with the same heading that follow each other are one section of a
/// page.
pub(crate) struct DocumentBlock<'a> {
    pub(crate) heading: &'static str,
    /// True if a page has it before the limits and findings.
    pub(crate) is_first_on_page: bool,
    pub(crate) content: Content<'a>,
}

/// Lines for a terminal.
pub(crate) type Lines<'a> = Box<dyn Fn(&TableStyle) -> Vec<String> + 'a>;

/// Content of a [`DocumentBlock`].
pub(crate) enum Content<'a> {
    /// Subject of the measurement, above all else on a terminal.
    Title(String),
    /// Sentences on a terminal, and nothing on a page.
    Introduction(Vec<String>),
    Table(Table),
    /// Conclusions: on a terminal after all else, before the definitions.
    Summary(Vec<String>),
    /// Sentences below a table.
    Remarks(Vec<String>),
    /// Sentences on a page, and nothing on a terminal.
    Details(Vec<String>),
    /// Markup of a page, and nothing on a terminal.
    Markup(String),
    Distributions(Distributions<'a>),
    /// Plot on a page, and markup below it.
    Plot(Plot, String),
    /// Sparklines or bars on a terminal.
    Shape(Lines<'a>),
    Facts(FactGroup),
    /// Definitions at the end of a page, of a result whose lines on a terminal need none.
    PageNote(&'static str),
    /// Limits and findings, on a terminal here instead of at the end.
    Judgement,
    /// Content of a form of its own, on a terminal and as markup of a page.
    Custom(Lines<'a>, String),
}

impl<'a> Content<'a> {
    pub(crate) fn under(self, heading: &'static str) -> DocumentBlock<'a> {
        DocumentBlock { heading, is_first_on_page: false, content: self }
    }
}

impl DocumentBlock<'_> {
    pub(crate) fn first_on_page(self) -> Self {
        Self { is_first_on_page: true, ..self }
    }
}

/// Table whose rows have names.
pub(crate) struct Table {
    /// Element on a page, and its label.
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) names: NameColumn,
    /// Titles, and widths on a terminal.
    pub(crate) columns: Vec<(Cow<'static, str>, usize)>,
    pub(crate) rows: Vec<TableRow>,
}

/// Column of names of a [`Table`], on a terminal.
#[derive(Clone, Copy)]
pub(crate) struct NameColumn {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    /// Title and width where the columns do not fit next to these.
    pub(crate) narrow: (&'static str, usize),
    /// True if they are flush right.
    pub(crate) right: bool,
    /// Name on a page, and the title of the column there, if it has one.
    pub(crate) on_page: fn(&str) -> String,
    pub(crate) page_title: Option<&'static str>,
}

impl NameColumn {
    pub(crate) const fn words(title: &'static str, width: usize) -> Self {
        Self {
            title,
            width,
            narrow: (title, width),
            right: false,
            on_page: str::to_owned,
            page_title: None,
        }
    }

    pub(crate) const fn numbers(
        title: &'static str,
        width: usize,
        on_page: fn(&str) -> String,
    ) -> Self {
        Self { title, width, narrow: (title, width), right: true, on_page, page_title: None }
    }

    /// Returns the column with this title on a page.
    pub(crate) const fn titled(self, title: &'static str) -> Self {
        Self { page_title: Some(title), ..self }
    }

    /// Returns the column with another title and width for a narrow terminal.
    pub(crate) const fn or(self, title: &'static str, width: usize) -> Self {
        Self { narrow: (title, width), ..self }
    }
}

/// Row of a [`Table`].
pub(crate) struct TableRow {
    pub(crate) name: String,
    /// Cells in the order of the columns, or a text instead of them.
    pub(crate) cells: Result<Vec<String>, String>,
}

impl TableRow {
    pub(crate) fn new(name: impl Into<String>, cells: impl Into<Vec<String>>) -> Self {
        Self { name: name.into(), cells: Ok(cells.into()) }
    }
}

/// Distributions of one quantity, each with its name.
pub(crate) struct Distributions<'a> {
    /// Quantity, for the terminal's shapes.
    pub(crate) quantity: &'static str,
    pub(crate) entries: Vec<(String, &'a Distribution)>,
    /// Plots on a page: element and title of the histogram, and of the percentiles.
    pub(crate) histogram: Option<(&'static str, &'static str)>,
    pub(crate) percentiles: Option<(&'static str, &'static str)>,
    /// Element of the table with the same figures.
    pub(crate) described_by: &'static str,
}
