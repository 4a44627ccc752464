//! Document: content of a result in reading order, independent of the output form. Each kind of
//! result describes itself once, in `kinds`; this module renders the document as terminal text and
//! as an HTML page.

mod page;
mod terminal;

use std::borrow::Cow;

use horolog_record::{Distribution, Finding, Host, LimitResult};
use serde_json::Value;

use crate::facts::FactGroup;
use crate::html::plot::Plot;
use crate::metrics::Metric;
use crate::table::TableStyle;

/// Kind of result that describes itself.
pub(crate) trait DescribeResult: serde::Serialize {
    /// Returns the document of the result.
    fn document(&self) -> ResultDocument<'_>;

    /// Returns the reduced copy that a page embeds as JSON; `None` to embed the whole result.
    fn embedded(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Returns the metrics of this kind of result.
    fn metrics() -> Vec<Metric<Self>>
    where
        Self: Sized + 'static,
    {
        Vec::new()
    }

    /// Returns the results of other commands in this result, with the names of their parts; their
    /// metrics are compared as well.
    fn results(&self) -> Vec<(String, &Value)> {
        Vec::new()
    }
}

/// Result that can be rendered for the terminal and as an HTML page.
pub trait RenderableResult {
    /// Returns the lines for the terminal, without a newline at the end.
    fn text(&self, style: &TableStyle) -> String;

    /// Returns the lines for the terminal below rows that were printed during the measurement.
    fn summary(&self, style: &TableStyle) -> String;

    /// Returns the page as HTML, with the result as JSON in the element `result`.
    fn page(&self) -> String;

    /// Returns the metrics on which limits can be set.
    #[must_use]
    fn limit_metrics() -> Vec<Metric<Self>>
    where
        Self: Sized + 'static;
}

impl<R: DescribeResult> RenderableResult for R {
    fn text(&self, style: &TableStyle) -> String {
        terminal::text(&self.document(), style)
    }

    fn summary(&self, style: &TableStyle) -> String {
        let mut document = self.document();
        document.blocks.retain(|block| !matches!(block.content, BlockContent::LiveRows(_)));
        terminal::text(&document, style)
    }

    fn page(&self) -> String {
        match self.embedded() {
            Some(part) => page::page(&self.document(), &part),
            None => page::page(&self.document(), self),
        }
    }

    fn limit_metrics() -> Vec<Metric<Self>>
    where
        Self: 'static,
    {
        Self::metrics().into_iter().filter(Metric::is_limited).collect()
    }
}

/// Content of a result in reading order.
pub(crate) struct ResultDocument<'a> {
    /// Command that measures, such as `host switch`.
    pub(crate) kind: &'static str,
    pub(crate) heading: String,
    /// Sentence on the extent and start of the measurement, below the heading of a page.
    pub(crate) lead: String,
    pub(crate) headline: HeadlineMetric,
    pub(crate) blocks: Vec<DocumentBlock<'a>>,
    /// Definitions of the metrics.
    pub(crate) method: &'static str,
    pub(crate) limits: &'a [LimitResult],
    pub(crate) findings: &'a [Finding],
    pub(crate) run: RunFacts<'a>,
}

/// Most informative metric of a result, and a sentence.
pub(crate) struct HeadlineMetric {
    pub(crate) name: String,
    /// Value of the metric; `None` if it was not measured.
    pub(crate) value: Option<String>,
    pub(crate) sentence: String,
}

/// Pairs of name and value; those without a value are omitted.
pub(crate) type NamedFacts = Vec<(&'static str, Option<String>)>;

/// Facts about the run and its host, the last section of a page.
pub(crate) struct RunFacts<'a> {
    pub(crate) heading: &'static str,
    /// Facts before the command, and facts after the start time.
    pub(crate) before: NamedFacts,
    pub(crate) after: NamedFacts,
    /// Facts in further lists, beside these.
    pub(crate) other_lists: Vec<NamedFacts>,
    pub(crate) schema: &'a str,
    pub(crate) command: &'a [String],
    pub(crate) started: &'a str,
    /// Host; `None` if the result has no facts about its run; its page then has no such section.
    pub(crate) host: Option<&'a Host>,
}

impl<'a> RunFacts<'a> {
    /// Creates the facts of a result that only states its schema.
    pub(crate) const fn unknown(schema: &'a str) -> Self {
        Self {
            heading: "",
            before: Vec::new(),
            after: Vec::new(),
            other_lists: Vec::new(),
            schema,
            command: &[],
            started: "",
            host: None,
        }
    }
}

/// Returns the [`RunFacts`] of a result from its fields `schema`, `command`, `started` and `host`.
macro_rules! run_of {
    ($result:expr) => {
        crate::document::RunFacts {
            heading: "Run and host",
            command: &$result.command,
            started: &$result.started,
            host: Some(&$result.host),
            ..crate::document::RunFacts::unknown(&$result.schema)
        }
    };
}
pub(crate) use run_of;

/// Block of a document. On a page, consecutive blocks with the same heading form one section.
pub(crate) struct DocumentBlock<'a> {
    pub(crate) heading: &'static str,
    /// True if a page shows the block before limits and findings.
    pub(crate) is_first_on_page: bool,
    pub(crate) content: BlockContent<'a>,
}

/// Function that returns the lines for a terminal.
pub(crate) type TerminalLinesRenderer<'a> = Box<dyn Fn(&TableStyle) -> Vec<String> + 'a>;

/// Function that returns HTML markup.
pub(crate) type MarkupRenderer<'a> = Box<dyn Fn() -> String + 'a>;

/// Content of a [`DocumentBlock`].
pub(crate) enum BlockContent<'a> {
    /// Title with the subject of the measurement; first on a terminal, not on a page.
    Title(String),
    /// Introductory sentences; on a terminal only.
    Introduction(Vec<String>),
    Table(NamedRowTable),
    /// Conclusions: on a terminal below the other blocks, above the definitions.
    Summary(Vec<String>),
    /// Sentences below a table.
    Remarks(Vec<String>),
    /// Additional sentences; on a page only.
    Details(Vec<String>),
    /// HTML markup; on a page only.
    Markup(MarkupRenderer<'a>),
    Distributions(DistributionSet<'a>),
    /// Plot with markup below it; on a page only.
    Plot(Plot, String),
    /// Sparklines or bars on a terminal.
    Shape(TerminalLinesRenderer<'a>),
    Facts(FactGroup),
    /// Failure in words, in the title and verdict of a page, in place of failed limits.
    Failure(String),
    /// Rows that a command prints during the measurement; on a terminal only, and not in a summary.
    LiveRows(TerminalLinesRenderer<'a>),
    /// Times in ns at the rate in the headline of a page, with names; `None` if unknown.
    TimesAtRate(Vec<(&'static str, Option<u64>)>),
    /// Definitions at the end of a page, in place of [`ResultDocument::method`]; for results whose
    /// terminal text needs none.
    PageNote(&'static str),
    /// Document of another result under its own heading, instead of that of the block; on a page
    /// only.
    Part(String, Box<ResultDocument<'a>>),
    /// Limits and findings, on a terminal here instead of at the end.
    Judgement,
    /// Individual rendering: lines for a terminal, and markup for a page.
    Custom(TerminalLinesRenderer<'a>, String),
}

impl<'a> BlockContent<'a> {
    pub(crate) fn under(self, heading: &'static str) -> DocumentBlock<'a> {
        DocumentBlock { heading, is_first_on_page: false, content: self }
    }
}

impl DocumentBlock<'_> {
    pub(crate) fn first_on_page(self) -> Self {
        Self { is_first_on_page: true, ..self }
    }
}

/// Table with a name for each row.
pub(crate) struct NamedRowTable {
    /// Element `id` of the table on a page, and its label.
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) names: NameColumn,
    /// Titles, and widths on a terminal.
    pub(crate) columns: Vec<(Cow<'static, str>, usize)>,
    pub(crate) rows: Vec<NamedRow>,
}

/// Column with the names of the rows of a [`NamedRowTable`].
#[derive(Clone, Copy)]
pub(crate) struct NameColumn {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    /// Title and width if the terminal is too narrow for the normal ones.
    pub(crate) narrow: (&'static str, usize),
    /// True if the names are right-aligned.
    pub(crate) right: bool,
    /// Function that returns the name on a page, and the title of the column there.
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

/// Row of a [`NamedRowTable`].
pub(crate) struct NamedRow {
    pub(crate) name: String,
    /// Cells in the order of the columns, or a text in place of all cells.
    pub(crate) cells: Result<Vec<String>, String>,
}

impl NamedRow {
    pub(crate) fn new(name: impl Into<String>, cells: impl Into<Vec<String>>) -> Self {
        Self { name: name.into(), cells: Ok(cells.into()) }
    }

    /// Returns rows of names with their cells.
    pub(crate) fn list(rows: Vec<(String, Vec<String>)>) -> Vec<Self> {
        rows.into_iter().map(|(name, cells)| Self::new(name, cells)).collect()
    }
}

/// Distributions of one quantity, each with a name.
pub(crate) struct DistributionSet<'a> {
    /// Name of the quantity in the terminal text; empty to omit the distributions there.
    pub(crate) quantity: &'static str,
    pub(crate) entries: Vec<(String, &'a Distribution)>,
    /// Plots on a page: element and title of the histogram, and of the percentiles.
    pub(crate) histogram: Option<(&'static str, &'static str)>,
    pub(crate) percentiles: Option<(&'static str, &'static str)>,
    /// Element `id` of the table with the same values.
    pub(crate) described_by: &'static str,
}
