//! Arbitrary text as a task file: parsing never panics, an error is one line, a parsed set is
//! unchanged when made again from its tasks, and its response times have bounds: the safe one is
//! the sum of its terms and no shorter than the one as published.
#![no_main]

use horolog_cycle::predict::{HostCosts, PredictedHostConfig, predict};
use horolog_cycle::task::TaskSet;
use horolog_record::{CyclePredictCost, CyclePredictCostKind as Kind, CyclePredictVerdict};
use libfuzzer_sys::fuzz_target;

fn cost(kind: Kind, ns: u64, every_ns: Option<u64>, bytes: Option<u64>) -> CyclePredictCost {
    CyclePredictCost {
        kind,
        core: None,
        ns,
        every_ns,
        part: None,
        bytes,
        half_ns: bytes.map(|_| ns / 2),
        source: String::new(),
        statistic: String::new(),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let set = match TaskSet::parse(text) {
        Ok(set) => set,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    assert_eq!(TaskSet::new(set.tasks().to_vec()).as_ref(), Ok(&set));
    let costs = HostCosts::new(vec![
        cost(Kind::Switch, 1_000, None, None),
        cost(Kind::Release, 9_000, None, None),
        cost(Kind::Scheduler, 5_000, Some(4_000_000), None),
        cost(Kind::Interrupt, 90_000, Some(100_000_000), None),
        cost(Kind::Message, 60_000, None, Some(1_448)),
    ]);
    for (nodes, cores) in [(1, 1), (3, 2)] {
        let host = PredictedHostConfig { nodes, cores, real_time_share: None };
        let prediction = match predict(&set, &costs, host) {
            Ok(prediction) => prediction,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                return;
            }
        };
        for task in prediction.tasks {
            assert_ne!(task.verdict, CyclePredictVerdict::Unknown, "every cost is known");
            let Some(safe) = task.safe.filter(|safe| safe.rounds > 0) else { continue };
            let sum: u64 = safe.terms.iter().map(|term| term.ns).sum();
            assert_eq!(safe.response_ns, sum);
            let published = task.as_published.expect("a safe bound has a published one");
            assert!(published.response_ns <= safe.response_ns);
        }
    }
});
