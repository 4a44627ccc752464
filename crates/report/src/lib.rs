//! Renderers that turn a result into text for a terminal, a file, a browser or another program.
//!
//! They are pure functions: width and colour are parameters, and no clock, file, environment
//! variable or terminal is read, so that the same result always gives the same output. They compute
//! only sums, shares and ratios of values in the result. A value that cannot be stated is shown as
//! `-`, never as NaN or a negative number.

mod breakdown;
mod checks;
mod compare;
pub mod csv;
mod document;
mod facts;
mod findings;
mod host;
pub mod html;
mod json;
mod junit;
mod kinds;
mod limits;
mod live;
pub mod located_value;
mod markdown_summary;
mod metrics;
mod parse;
mod relay_tree_gain;
pub mod table;
pub mod units;
mod verdict;

#[cfg(test)]
mod fixture;

pub use checks::{CommandChecks, CommandOutcome};
pub use compare::{ComparableResult, ResultComparison};
pub use document::RenderableResult;
pub use findings::severity_name;
pub use json::to_json;
pub use junit::junit;
pub use kinds::{
    after_line, compared_name, cycle_test_fault_name, dependency_name, exchange_name, host_part,
    peer_name, setting_name, stall_mechanism, stall_not_followed, stall_pattern,
};
pub use limits::broken as broken_limits;
pub use live::load_metrics;
pub use markdown_summary::summary;
pub use metrics::{MeasuredResult, Metric, NamedValue};
pub use parse::{ResultParseError, parse_result, result_kinds};
pub use verdict::{highest, location_name};
