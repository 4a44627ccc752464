//! Collector's side of a run: sums of the entries that tasks publish.

pub(crate) mod cross_node;
pub(crate) mod task_stats;
