//! The table on a terminal: a load run row by row as its trials finish, what the run comes to, and
//! the comparisons of a demonstration and of an experiment. It looks like ntpperf's, with
//! percentiles. Whether there is a terminal, how wide it is and whether it may show colour is for
//! the caller to know.

pub(crate) mod after;
pub(crate) mod at;
mod bench_cores;
pub(crate) mod bench_nts;
mod bench_relay;
mod campaign;
mod clock;
pub(crate) mod clock_compare;
mod clock_log;
pub(crate) mod compare;
mod cycle;
mod cycle_predict;
mod cycle_test;
mod demo;
pub(crate) mod establishment;
mod grid;
mod host_all;
mod host_clock;
mod host_delay;
pub(crate) mod host_interrupt;
mod host_nic;
pub(crate) mod host_switch;
pub(crate) mod host_timer;
mod load;
mod ntpperf;
pub(crate) mod path_stall;
pub(crate) mod path_tcp;
mod path_udp;
pub(crate) mod query;
mod relay_tree;
mod run_list;
mod series;
mod shapes;
mod summary;

pub use after::{after, after_line, dependency_name};
pub use at::at;
pub use bench_cores::bench_cores;
pub use bench_nts::bench_nts;
pub use bench_relay::bench_relay;
pub use campaign::campaign;
pub use clock::clock;
pub use clock_compare::clock_compare;
pub use clock_log::clock_log;
pub use compare::compare;
pub(crate) use compare::compared_figure;
pub use compare::name as compared_name;
pub use cycle::cycle;
pub use cycle_predict::cycle_predict;
pub use cycle_test::cycle_test;
pub use demo::demo;
pub use establishment::{establishment, establishment_header, establishment_row};
pub use host_all::{host_all, host_part};
pub use host_clock::host_clock;
pub use host_delay::host_delay;
pub use host_interrupt::host_interrupt;
pub use host_nic::host_nic;
pub use host_switch::{exchange_name, host_switch, partner_name};
pub use host_timer::host_timer;
pub use load::{Shown, header, load, row};
pub use ntpperf::{NtpperfPanel, NtpperfTable};
pub use path_stall::path_stall;
pub use path_tcp::path_tcp;
pub use path_udp::path_udp;
pub use query::query;
pub use relay_tree::relay_tree;
pub use run_list::run_list;
pub use series::{behind_label, interval_header, interval_row, labelled};
pub use summary::summary;

/// How a table may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStyle {
    /// Whether to mark with colour what the text says anyway.
    pub colour: bool,
    /// Columns of characters to keep to. A load table leaves out columns that do not fit, down to
    /// rate, loss, median and 99th percentile; nothing is left out of the result for that.
    pub width: usize,
}

impl Default for TableStyle {
    /// All columns and no colour: for a file or a pipe.
    fn default() -> Self {
        Self { colour: false, width: usize::MAX }
    }
}
