//! Stats of a run on the collector's side, from the entries that tasks publish.

pub(crate) mod cross_node;
pub(crate) mod task_stats;
