//! Text tables for a terminal: rows of a load run as its trials finish (in the layout of ntpperf,
//! with percentiles added), and comparisons. The caller determines the terminal's
//! width and whether colour is used.

pub(crate) mod grid;
mod load;
mod ntpperf;
mod nts_ke;
mod run_list;
mod series;
pub(crate) mod shapes;
pub(crate) mod summary;

pub use load::{LoadTableOptions, header, row};
pub use ntpperf::{NtpperfColumnGroup, NtpperfTableOptions};
pub use nts_ke::{nts_ke_header, nts_ke_row};
pub use run_list::run_list;
pub use series::{behind_label, interval_header, interval_row, labelled};

/// Colour and width of terminal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStyle {
    /// True to mark parts by colour; the text states the same without it.
    pub colour: bool,
    /// Maximum width in columns of characters. A load table omits columns that do not fit, down to
    /// rate, loss, median and 99th percentile; the result itself stays complete.
    pub width: usize,
}

impl Default for TableStyle {
    /// Returns the style for a file or pipe: unlimited width, no colour.
    fn default() -> Self {
        Self { colour: false, width: usize::MAX }
    }
}
