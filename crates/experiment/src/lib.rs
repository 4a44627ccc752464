//! Experiments: measurements that combine several tools in one run. Each creates lab hosts, starts
//! servers or relays in them, loads these, and returns a record.
//!
//! Options are complete and valid when they arrive here, except for combinations that depend on the
//! host. Nothing is printed: an [`ExperimentObserver`] receives the progress.

pub mod bench_cores;
pub mod bench_nts;
pub mod bench_relay;
pub mod clock_log;
pub mod clock_simulate;
pub mod demo;
mod error;
mod observer;
pub mod relay_tree;
mod server_under_test;

pub use error::ExperimentError;
pub use observer::ExperimentObserver;

/// Returns the values without duplicates, in the order of their first occurrence.
fn distinct_values<T: PartialEq + Copy>(values: &[T]) -> Vec<T> {
    let is_first = |(index, value): &(usize, &T)| !values[..*index].contains(*value);
    values.iter().enumerate().filter(is_first).map(|(_, value)| *value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_removed() {
        assert_eq!(distinct_values(&[2, 1, 2, 1]), [2, 1]);
    }
}
