//! Any result is the same after it was written and read, and the sums over it hold.

use horolog_record::{BenchCoresResult, BenchNtsResult, DemoResult, LoadResult};
use proptest::prelude::*;

use crate::strategies::{bench_cores_result, bench_nts_result, demo_result, load_result, trial};

proptest! {
    #[test]
    fn a_load_result(result in load_result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<LoadResult>(&text).unwrap(), result);
    }

    #[test]
    fn a_demo_result(result in demo_result()) {
        let text = serde_json::to_string_pretty(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<DemoResult>(&text).unwrap(), result);
    }

    #[test]
    fn a_bench_nts_result(result in bench_nts_result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<BenchNtsResult>(&text).unwrap(), result);
    }

    #[test]
    fn a_bench_cores_result(result in bench_cores_result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<BenchCoresResult>(&text).unwrap(), result);
    }

    #[test]
    fn shares_and_sums_never_fail(trial in trial()) {
        let ratio = trial.loss_ratio();
        prop_assert!(ratio >= 0.0 && ratio.is_finite());
        prop_assert_eq!(ratio == 0.0, trial.lost == 0 || trial.sent == 0);
        let total: u128 = trial.invalid.values().copied().map(u128::from).sum();
        prop_assert_eq!(u128::from(trial.invalid_total()), total.min(u128::from(u64::MAX)));
    }
}
